// What the page does, as code to copy: a script in Python, and a page that uses this site's files.
import { $ } from "./show.mjs";

const text = (value) => JSON.stringify(value);
const inScript = (value) => text(value).replaceAll("<", "\\u003c");  // no "</script>", which would end it
// In a string of Python, within a template of JavaScript
const inTemplate = (value) => inScript(value).replaceAll("\\", "\\\\").replaceAll("`", "\\`").replaceAll("$", "\\$");

function asPython({ name, prompt, length, temperature }) {
  return `import halfbyte

model = halfbyte.load(${text(name)})
for piece in model.stream(${text(prompt)}, max_tokens=${length}, temperature=${temperature}):
    print(piece, end="", flush=True)
`;
}

// The site has to allow other origins to load its files, unless the page is put beside them.
function asHtml({ url, prompt, length, temperature }) {
  const site = new URL(".", location.href).href.replace(/[?#].*/, "");
  return `<!doctype html>
<meta charset="utf-8">
<p id="story"></p>
<script type="module">
  const { loadPyodide } = await import(${inScript(`${site}pyodide/pyodide.mjs`)});
  const pyodide = await loadPyodide({ packages: ["numpy", "halfbyte"] });
  const story = document.getElementById("story");
  pyodide.globals.set("write", (piece) => story.append(piece));
  await pyodide.runPythonAsync(\`
import halfbyte

model = await halfbyte.load_url(${inTemplate(url)})
async for piece in model.astream(${inTemplate(prompt)}, max_tokens=${length}, temperature=${temperature}):
    write(piece)
\`);
</script>
`;
}

// The buttons that copy both; `now` returns what the code is made of.
export function copying(now) {
  for (const [id, code] of [["as-python", asPython], ["as-html", asHtml]]) {
    $(id).addEventListener("click", async () => {
      const said = await navigator.clipboard?.writeText(code(now())).then(() => "Copied.", () => "");
      $("copied").textContent = said || "The browser does not let this page copy.";
    });
  }
}
