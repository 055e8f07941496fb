// A picture and the figures, to keep or to send. Nothing is sent unless someone presses the button.
import { $, make } from "../show.mjs";
import { drawCard } from "./card.mjs";
import { pageColours } from "./chart.mjs";

export function share(results) {
  const canvas = $("card");
  $("share").hidden = false;
  const draw = () => drawCard(canvas, results(), pageColours());
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const heats = Object.values(results().heats);
  canvas.setAttribute("aria-label", `A picture of the results. ${heats.map(({ verdict }) => verdict).join(" ")}`);
  const picture = () => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  const figures = () => new Blob([JSON.stringify(results(), null, 1)], { type: "application/json" });
  $("save-picture").addEventListener("click", async () => save(await picture(), "race.png"));
  $("save-figures").addEventListener("click", () => save(figures(), "race.json"));
  const file = async () => new File([await picture()], "race.png", { type: "image/png" });
  file().then((one) => { $("send").hidden = !navigator.canShare?.({ files: [one] }); });
  $("send").addEventListener("click", async () => {
    await navigator.share({ files: [await file()], title: "halfbyte: the race" }).catch(() => {});
  });
}

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
