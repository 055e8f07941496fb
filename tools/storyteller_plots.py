"""The plots of the storyteller's stories, with slots for things, helpers and words."""

from __future__ import annotations

from typing import Any

# The slots of a plot are lists (or lists of tuples, whose parts are slot_0, slot_1); a story takes
# one sentence of each part, in order. {n} is the hero with {he} {him} {his}, {h} is the helper.
PLOTS: list[dict[str, Any]] = [
    {
        "thing": [("kite", "roof"), ("balloon", "tree"), ("apple", "tree"), ("ball", "roof"),
                  ("pear", "tree"), ("hat", "chimney"), ("paper plane", "tower")],
        "h": ["owl", "crow", "sparrow", "swallow", "blackbird", "pigeon"],
        "wish": ["One day, {n} saw a {thing_0} high up on the {thing_1}. {He} wanted it very much.",
                 "One morning, {n} looked up at the {thing_1}. There was a red {thing_0} at the "
                 "very top, and {he} wanted to have it."],
        "obstacle": ["But the {thing_1} was too high for {him}. {He} jumped and jumped, but {he} "
                     "could not reach it.",
                     "{He} tried to climb up, but {he} slipped and fell down on the grass.",
                     "{He} stood on a box and stretched {his} arms, but it was still too far "
                     "away."],
        "cannot": ["I cannot reach the {thing_0}", "the {thing_0} is too high for me"],
        "can": ["I have wings", "I can fly", "nothing is too high for me"],
        "solution": ["The {h} flew up to the top of the {thing_1} and came back with the "
                     "{thing_0}.",
                     "Then the {h} spread its wings, flew up, and dropped the {thing_0} right into "
                     "{his} hands."],
        "ending": ["{n} held the {thing_0} tight and laughed.",
                   "{n} danced around the {thing_1} with the {thing_0}."],
        "lesson": ["what is too high for one is easy for another", "it is good to ask for help"],
    },
    {
        "goal": [("the berry field", "berries"), ("the old mill", "flour"),
                 ("the little island", "shells"), ("the apple garden", "apples"),
                 ("the hazel bushes", "nuts"), ("the flower meadow", "flowers")],
        "h": ["beaver", "turtle", "duck", "swan", "goose"],
        "wish": ["One day, {n} wanted to go to {goal_0} to get some {goal_1} for {his} mother.",
                 "One sunny day, {n} took a basket. {He} wanted to bring home {goal_1} from "
                 "{goal_0}."],
        "obstacle": ["But a wide river was in the way, and there was no bridge.",
                     "Soon {he} came to a deep river. {He} tried to cross it on a log, but the log "
                     "rolled and {he} got very wet.",
                     "But the rain had washed the bridge away, and the water was cold and deep."],
        "cannot": ["I cannot cross the river", "the river is too deep for me"],
        "can": ["I swim here every day", "I know this river well", "the water is my home"],
        "solution": ["{n} climbed onto the back of the {h}, and the {h} carried {him} over the "
                     "water.",
                     "The {h} found an old boat in the reeds and pulled it across the river with "
                     "{n} in it."],
        "ending": ["{n} filled {his} basket with {goal_1} and gave half of them to the {h}.",
                   "In the evening {n} came home with a basket full of {goal_1}, and {his} mother "
                   "was proud."],
        "lesson": ["a friend can be a bridge", "no river is too wide for two"],
    },
    {
        "thing": ["blue ball", "silver bell", "red scarf", "wooden horse", "golden key",
                  "green hat", "little drum", "warm mitten"],
        "spot": [("under a bush", "under a bush"), ("in a pile of leaves", "in the leaves"),
                 ("behind the well", "behind the well"), ("in the tall grass", "in the grass"),
                 ("inside a hollow log", "in the log")],
        "h": ["mole", "dog", "mouse", "owl", "magpie", "weasel"],
        "wish": ["One day, {n} could not find {his} {thing}. It was the thing {he} loved most.",
                 "One afternoon, {n} came home and saw that {his} {thing} was gone. {He} wanted it "
                 "back."],
        "obstacle": ["{He} looked under the bed and behind the door, but it was not there.",
                     "{He} looked in the kitchen and in the garden. {He} looked everywhere, but "
                     "{he} did not find it.",
                     "{He} walked all the way back along the path, but it was nowhere to be seen."],
        "cannot": ["I have lost my {thing}", "my {thing} is gone"],
        "can": ["I am good at finding things", "my nose is very good", "my eyes are very sharp"],
        "solution": ["They searched together, and the {h} found the {thing} {spot_0}.",
                     "The {h} went along the path, stopped, and called {n}. The {thing} was "
                     "{spot_1}!"],
        "ending": ["{n} hugged the {thing} and promised to take better care of it.",
                   "{n} was so glad that {he} gave the {h} a big hug."],
        "lesson": ["four eyes see more than two", "a lost thing is found sooner together"],
    },
    {
        "thing": [("eggs", "hen"), ("honey", "bee"), ("milk", "cow"), ("butter", "goat"),
                  ("nuts", "squirrel"), ("apples", "hedgehog")],
        "cake": ["cake", "pie", "big cake", "sweet pie"],
        "h": ["{thing_1}"],
        "wish": ["It was the birthday of {his} mother, and {n} wanted to bake a {cake} for her.",
                 "One day, {n} wanted to bake a {cake} as a surprise for {his} grandmother."],
        "obstacle": ["{He} looked in the kitchen, but {he} could find no {thing_0}.",
                     "{He} began to stir, but then {he} saw that {he} had no {thing_0} at all.",
                     "But the jar was empty. Without {thing_0}, {he} could not bake at all."],
        "cannot": ["I have no {thing_0} for my {cake}", "I cannot bake a {cake} without {thing_0}"],
        "can": ["I have plenty of {thing_0}", "I have more {thing_0} than I need"],
        "solution": ["The {h} gave {n} all the {thing_0} {he} needed, and soon the {cake} was in "
                     "the oven.",
                     "{n} took the {thing_0}, ran home, and baked the {cake} until it was golden "
                     "brown."],
        "ending": ["The house smelled sweet, and everybody got a piece, even the {h}.",
                   "It was the best {cake} they had ever eaten, and the {h} got the biggest "
                   "piece."],
        "lesson": ["a gift tastes best when it is shared", "sharing makes everything sweeter"],
    },
    {
        "thing": ["sunflower", "rose", "tulip", "bean", "pumpkin", "poppy"],
        "h": ["frog", "toad", "worm", "snail", "bee"],
        "wish": ["In spring, {n} put a small seed into the ground. {He} wanted to grow a {thing}.",
                 "One day, {n} found a seed and planted it. {He} dreamed of a tall {thing}."],
        "obstacle": ["{He} waited for many days, but nothing came out of the dry ground.",
                     "But the sun was hot, the ground was hard, and the seed did not grow.",
                     "Every morning {he} looked, and every morning there was only dust."],
        "cannot": ["my seed does not want to grow", "I want a {thing}, but nothing grows"],
        "can": ["I know what seeds need", "I know a lot about gardens"],
        "solution": ["The {h} showed {him} how to make the ground soft and to give the seed water "
                     "every day.",
                     "Together they carried water from the pond, and the {h} told {him} to be "
                     "patient."],
        "ending": ["After a week there was a green leaf, and in summer there was a beautiful "
                   "{thing}.",
                   "Soon the {thing} was taller than {n}, and everyone came to look at it."],
        "lesson": ["good things need time", "with care and patience, small things grow"],
    },
    {
        "noise": ["a strange noise", "a soft knock", "a long howl", "a creak in the wall"],
        "h": ["firefly", "moth", "star", "bat", "cricket"],
        "wish": ["One night, {n} lay in bed and wanted to sleep.",
                 "One evening, {n} was very tired and wanted to fall asleep."],
        "obstacle": ["But it was dark, and {he} heard {noise}. {He} was afraid.",
                     "Then there was {noise}, and the room was as black as coal. {He} pulled the "
                     "blanket over {his} head."],
        "cannot": ["I am afraid of the dark", "it is too dark, and I cannot sleep"],
        "can": ["I know the night well", "the night is my friend"],
        "solution": ["The {h} made a small warm light, and {n} saw that the noise was only the "
                     "wind in the tree.",
                     "The {h} stayed at the window and shone softly. Now {n} saw that there was "
                     "nothing to fear."],
        "ending": ["{n} smiled, closed {his} eyes, and slept until the morning.",
                   "Soon {n} was fast asleep and dreamed of golden lights."],
        "lesson": ["a little light is stronger than the dark", "the dark is not so bad after all"],
    },
    {
        "skill": [("swim", "otter", "water"), ("sing", "nightingale", "song"),
                  ("dance", "crane", "music"), ("skate", "penguin", "ice"),
                  ("whistle", "thrush", "tune"), ("dive", "duck", "lake")],
        "h": ["{skill_1}"],
        "wish": ["More than anything, {n} wanted to learn to {skill_0}.",
                 "One day, {n} saw the others {skill_0}, and {he} wanted to {skill_0} too."],
        "obstacle": ["{He} tried it once, and {he} tried it twice, but it went wrong every time.",
                     "But when {he} tried, everybody laughed, and {he} ran away.",
                     "{He} tried all day, but it was much too hard."],
        "cannot": ["I will never learn to {skill_0}", "I try and try, but I cannot {skill_0}"],
        "can": ["I will teach you", "I was not good at it at first either"],
        "solution": ["The {h} showed {him} how to begin, slowly and step by step. They practised "
                     "every day.",
                     "Every morning the {h} came to practise with {n}, and every day it went a "
                     "little better."],
        "ending": ["At the end of summer, {n} could {skill_0} better than anyone.",
                   "One day, {n} could {skill_0} all alone, and everybody cheered."],
        "lesson": ["nobody is good at the start", "those who keep trying get better"],
    },
    {
        "thing": [("hut", "straw", "stones"), ("tower", "sticks", "bricks"),
                  ("boat", "paper", "wood"), ("shed", "leaves", "boards")],
        "h": ["beaver", "bear", "stork", "badger", "horse"],
        "wish": ["One day, {n} wanted to build a {thing_0}. {He} made it out of {thing_1}.",
                 "{n} had a plan. {He} wanted to have a {thing_0} of {his} own, so {he} built one "
                 "out of {thing_1}."],
        "obstacle": ["But in the night a strong wind came and blew it all away.",
                     "Then it began to rain, and soon nothing was left of it.",
                     "But it was not strong, and on the next day it fell apart."],
        "cannot": ["my {thing_0} is broken", "my {thing_0} did not last a single day"],
        "can": ["I know how to build", "I have built many things"],
        "solution": ["The {h} brought {thing_2}, and together they built a new {thing_0}.",
                     "They gathered {thing_2} for three days. Then they built the {thing_0} again, "
                     "much stronger."],
        "ending": ["This time the {thing_0} stood firm in wind and rain.",
                   "When the next storm came, the {thing_0} did not even shake."],
        "lesson": ["what is built with care lasts long", "it pays to start again"],
    },
    {
        "thing": ["scarf", "blanket", "coat", "pair of socks", "warm cap"],
        "h": ["sheep", "lamb", "old sheep", "goat"],
        "wish": ["Winter came, and snow fell on the house of {n}. {He} wanted something warm to "
                 "wear.",
                 "It was the coldest day of the year, and {n} wanted to play in the snow."],
        "obstacle": ["But {he} had no {thing}, and {he} was shivering.",
                     "But the wind was icy, and without a {thing} {he} was too cold to go on.",
                     "{He} stood at the stove, but the fire was small, and {he} was still cold."],
        "cannot": ["I am so cold", "I have no {thing}, and the wind is icy"],
        "can": ["I have more wool than I need", "my wool is thick and warm"],
        "solution": ["The {h} gave {n} some of its wool, and {n} made a {thing} out of it.",
                     "The {h} brought a bag of soft wool. All evening {n} sat at the fire and made "
                     "a {thing}."],
        "ending": ["Now {n} was warm, and {he} played in the snow until it was dark.",
                   "The {thing} was as soft as a cloud, and {n} wore it all winter."],
        "lesson": ["a kind heart keeps you warm", "those who give make the world warmer"],
    },
    {
        "thing": ["pumpkin", "melon", "cabbage", "sack of corn", "bag of potatoes", "big cheese"],
        "h": ["horse", "ox", "donkey", "bear", "big dog"],
        "wish": ["One day in autumn, {n} wanted to bring a huge {thing} home from the market.",
                 "One day, {n} won a giant {thing} at the fair. {He} wanted to take it home."],
        "obstacle": ["{He} pulled and pushed, but the {thing} was too heavy and did not move.",
                     "But it was so heavy that {he} could not lift it at all.",
                     "{He} rolled it up the hill, but it rolled all the way down again."],
        "cannot": ["the {thing} is too heavy for me", "I cannot carry this {thing}"],
        "can": ["I am very strong", "I have a cart", "I carry heavy things every day"],
        "solution": ["They put the {thing} on a cart, and the {h} pulled it home.",
                     "The {h} took the {thing} on its back, and {n} showed the way."],
        "ending": ["In the evening they made a big pot of soup and ate it together.",
                   "At home {n} cut the {thing} in two and gave one half to the {h}."],
        "lesson": ["a heavy load is light for two", "strong friends are good to have"],
    },
]  # fmt: skip
