// The view of a conversation: keeps the messages, asks for an answer to all of them, and stores
// conversations in the browser.
import { $, make, refill } from "./show.mjs";
import { store } from "./storage.mjs";

const KEPT = "halfbyte-chats";
const MAX_KEPT = 30;  // conversations
const NEAR = 60;  // pixels from the end, within which the end is followed
const SHOWN = 2000;  // milliseconds in which a button says what it has done

// Copies a text; the button that was pressed says so for a while.
async function copy(text, button) {
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  button.textContent = done ? "Copied" : "Not allowed";
  setTimeout(() => { button.textContent = "Copy"; }, SHOWN);
}

// An answer as Markdown, which Python has rendered without raw HTML.
function format(element, html) {
  element.innerHTML = html;
  element.classList.add("formatted");
}

// `enter` shows the view of the conversation, with a model that talks.
export function chat({ write, problem, enter }) {
  let messages = [];
  let answer;  // the element of the answer that is being generated
  let id = Date.now();  // of the conversation
  let chats = store.read(KEPT) ?? [];
  let resumed;  // a kept conversation that is shown, and goes on with whichever model is opened

  // Pixels by which the conversation's end is below the field's top, and so not seen.
  const below = () => $("chat-log").getBoundingClientRect().bottom - $("chat-form").getBoundingClientRect().top;

  // Shows the conversation's end, from wherever the page stands.
  const reveal = () => window.scrollBy(0, below());

  // Changes the conversation; who sees its end goes on seeing it, who reads elsewhere is left there.
  function growing(change) {
    const atEnd = below() < NEAR;
    change();
    if (atEnd && below() > 0) reveal();
  }

  // A message of the conversation with what can be done with it.
  function add(role, text, tools = []) {
    const message = make(role === "assistant" ? "div" : "p", { class: role, dir: "auto", textContent: text });
    message.dataset.source = text;
    const buttons = tools.map(([name, act]) => {
      const button = make("button", { type: "button", class: "tool", textContent: name });
      button.addEventListener("click", () => act(button));
      return button;
    });
    const turn = make("div", { class: `turn of-${role}` }, message, make("div", { class: "tools", hidden: !tools.length }, ...buttons));
    $("chat-log").append(turn);
    return message;
  }

  function addQuestion(text) {
    const place = messages.length - 1;
    add("user", text, [["Edit", () => edit(place)]]);
  }

  function addAnswer(text) {
    const place = messages.length;
    const element = add("assistant", text, [["Copy", (button) => copy(element.dataset.source, button)], ["Retry", () => retry(place)]]);
    return element;
  }

  // Ways to begin are offered until something has been said.
  function offer() {
    $("chat-start").hidden = messages.some(({ role }) => role === "user");
  }

  // Shows the first messages of this conversation, and forgets the others.
  function cut(count) {
    const kept = messages.slice(0, count);
    messages = [];
    $("chat-log").replaceChildren();
    for (const { role, content, html } of kept) {
      if (role === "assistant") {
        const element = addAnswer(content);
        if (html) format(element, html);
      }
      messages.push({ role, content, html });
      if (role === "user") addQuestion(content);
      if (role === "system") add("system", content);
    }
    offer();
  }

  function edit(place) {
    if ($("anew").disabled) return;
    const { content } = messages[place];
    cut(place);
    $("message").value = content;
    $("message").focus();
  }

  function retry(place) {
    if ($("send").disabled || $("anew").disabled) return;
    const { content } = messages[place - 1];
    cut(place - 1);
    if (ask(content)) $("chat-log").focus({ preventScroll: true });
  }

  function begin() {
    id = Date.now();
    messages = [];
    resumed = undefined;
    $("chat-log").replaceChildren();
    $("chat-speed").textContent = "";
    problem("");
    offer();
    const system = $("system").value.trim();
    if (!system) return;
    messages = [{ role: "system", content: system }];
    add("system", system);
  }

  // What the browser keeps: another tab of the page may have changed it.
  const kept = () => store.read(KEPT) ?? chats;

  // Keeps these conversations, the oldest only if there is room.
  function keep(list) {
    chats = list;
    let count = list.length;
    while (!store.write(KEPT, list.slice(0, count)) && count) count -= 1;
    showChats();
  }

  function save() {
    const title = messages.find(({ role }) => role === "user").content.slice(0, 60);
    keep([{ id, title, messages }, ...kept().filter((other) => other.id !== id)].slice(0, MAX_KEPT));
  }

  // Shows a kept conversation, from whichever view.
  function resume(one) {
    if ($("chat-log").getAttribute("aria-busy") === "true") {
      problem("An answer is being generated. Stop it first (or press Esc).");
      return;
    }
    problem("");
    resumed = one;
    enter();
    restore();
  }

  function restore() {
    ({ id, messages } = resumed);
    cut(messages.length);
    reveal();
  }

  function showChats() {
    $("chats").hidden = !chats.length || $("views").hidden;
    refill($("chat-list"), chats.map((one) => {
      const show = make("button", { type: "button", class: "tool", dir: "auto", textContent: one.title });
      show.addEventListener("click", () => resume(one));
      const remove = make("button", { type: "button", class: "tool", "aria-label": `Remove “${one.title}”`, textContent: "✕" });
      remove.addEventListener("click", () => keep(kept().filter((other) => other.id !== one.id)));
      return make("li", { class: "row" }, show, remove);
    }));
  }

  const view = {
    speed: $("chat-speed"),
    piece(text, { html }) {
      answer.dataset.source += text;
      growing(() => (html ? format(answer, html) : answer.append(text)));
    },
    // Without a result, the answer has failed: the question returns to the input field.
    done(result) {
      answer.setAttribute("aria-busy", "false");
      $("chat-log").setAttribute("aria-busy", "false");
      if (!result) {
        const question = messages.at(-1);
        cut(messages.length - 1);
        $("message").value ||= question.content;
        return;
      }
      messages.push({ role: "assistant", content: answer.dataset.source, html: result.html });
      growing(() => {
        if (result.html) format(answer, result.html);
        if (result.dropped) add("note", `The oldest ${result.dropped} messages no longer fit the context.`);
        if (result.finish_reason === "length") add("note", "The answer was cut at the maximum length.");
        if (result.finish_reason === "context") add("note", "The answer was cut at the end of the context.");
      });
      save();
    },
    resumes: () => Boolean(resumed),
    loaded() {
      const one = resumed;
      begin();
      showChats();
      if (!one) return;
      resumed = one;
      restore();
    },
  };

  function ask(content) {
    if (!messages.length) begin();
    const question = { role: "user", content };
    const asked = [...messages, question].map((message) => ({ role: message.role, content: message.content }));
    if (!write(view, { kind: "chat", messages: asked })) return false;
    resumed = undefined;
    messages.push(question);
    offer();
    addQuestion(content);
    answer = addAnswer("");
    reveal();
    answer.setAttribute("aria-busy", "true");
    $("chat-log").setAttribute("aria-busy", "true");  // a screen reader waits for the whole answer
    return true;
  }

  $("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const content = $("message").value;
    if (content.trim() && !$("send").disabled && ask(content)) $("message").value = "";
  });
  $("starters").addEventListener("click", ({ target }) => {
    if (target.matches("button") && !$("send").disabled && ask(target.textContent)) $("chat-log").focus({ preventScroll: true });
  });
  $("message").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("chat-form").requestSubmit();
  });
  $("anew").addEventListener("click", () => {
    begin();
    $("message").focus();
  });
  window.addEventListener("storage", ({ key }) => {
    if (key !== KEPT) return;
    chats = kept();
    showChats();
  });
  showChats();
  return view;
}
