// The view of a conversation: keeps the messages, and asks for an answer to all of them.
const $ = (id) => document.getElementById(id);

export function chat({ write, problem }) {
  let messages = [];
  let answer;  // the paragraph that is being generated

  function add(role, text) {
    const paragraph = document.createElement("p");
    paragraph.className = role;
    paragraph.textContent = text;
    $("chat-log").append(paragraph);
    $("chat-log").scrollTop = $("chat-log").scrollHeight;
    return paragraph;
  }

  function begin() {
    const system = $("system").value.trim();
    messages = system ? [{ role: "system", content: system }] : [];
    $("chat-log").replaceChildren();
    $("chat-speed").textContent = "";
    if (system) add("system", system);
    problem("");
  }

  const view = {
    speed: $("chat-speed"),
    piece(text) {
      const log = $("chat-log");
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      answer.textContent += text;
      if (atEnd) log.scrollTop = log.scrollHeight;
    },
    // Without a result, the answer has failed: the question returns to the input field.
    done(result) {
      answer.setAttribute("aria-busy", "false");
      if (!result) {
        answer.previousElementSibling.remove();
        answer.remove();
        const question = messages.pop();
        $("message").value ||= question.content;
        return;
      }
      messages.push({ role: "assistant", content: answer.textContent });
      if (result.dropped) add("note", `The oldest ${result.dropped} messages no longer fit the context.`);
      if (result.finish_reason === "length") add("note", "The answer was cut at the maximum length.");
      if (result.finish_reason === "context") add("note", "The answer was cut at the end of the context.");
    },
    loaded: begin,
  };

  $("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const content = $("message").value;
    if (!content.trim() || $("send").disabled) return;
    if (!messages.length) begin();
    const question = { role: "user", content };
    if (!write(view, { kind: "chat", messages: [...messages, question] })) return;
    messages.push(question);
    add("user", content);
    answer = add("assistant", "");
    answer.setAttribute("aria-busy", "true");
    $("message").value = "";
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
  return view;
}
