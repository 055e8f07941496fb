// The view of a text: its beginning, what the model writes, and how likely each token was.
import { $, make } from "./show.mjs";

export function storyView() {
  for (const name of ["pointerover", "click"]) {
    $("written").addEventListener(name, ({ target }) => {
      if (target.dataset.about) $("token").textContent = target.dataset.about;
    });
  }
  return {
    speed: $("speed"),
    piece(text, { probability, others }) {
      if (probability === undefined) {
        $("written").append(text);
        return $("written").normalize();  // one node, which grows and does not move
      }
      const token = make("span", { class: "token", textContent: text });
      token.style.setProperty("--p", probability);
      const likely = others.map(([other, p]) => `“${other}” ${(100 * p).toFixed(0)} %`).join(", ");
      token.dataset.about = `“${text}” ${(100 * probability).toFixed(0)} %; likeliest: ${likely}`;
      return $("written").append(token);
    },
    done: () => {},
    loaded: () => {},
    begin(prompt) {
      $("coming").hidden = true;
      $("begun").textContent = prompt;
      $("written").textContent = "";
      $("token").hidden = !$("probabilities").checked;
      $("token").textContent = "Point at a word to see how likely it was.";
    },
  };
}
