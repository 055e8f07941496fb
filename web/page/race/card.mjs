// The picture to share, 1200 x 630: bars of each heat, the curve, and where it was.
import { drawChart } from "./chart.mjs";
import { figure } from "./contest.mjs";

const WIDTH = 1200, HEIGHT = 630, EDGE = 56;

export function drawCard(canvas, results, colours) {
  const context = canvas.getContext("2d");
  // Smaller than `size` where there is no room for it
  const text = (words, x, y, size, { colour = colours.ink, weight = 400, align = "left", room = WIDTH } = {}) => {
    const font = (pixels) => { context.font = `${weight} ${pixels}px system-ui, sans-serif`; };
    font(size);
    font(size * Math.min(1, room / context.measureText(words).width));
    context.fillStyle = colour;
    context.textAlign = align;
    context.textBaseline = "alphabetic";
    context.fillText(words, x, y);
  };
  context.fillStyle = colours.page;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  const heats = Object.values(results.heats);
  const [title] = heats.map(({ verdict }) => verdict).filter(Boolean);
  text(title || "The race", EDGE, 92, 44, { weight: 700, room: WIDTH - 2 * EDGE });
  text(results.where, EDGE, 130, 21, { colour: colours.soft, room: WIDTH - 2 * EDGE });
  const curve = results.heat?.samples.length > 1;
  const width = curve ? 590 : WIDTH - 2 * EDGE;
  let y = 178;
  for (const heat of heats) y = bars(heat, y) + 22;
  if (curve) chart();
  text(`halfbyte ${results.version} · the race, in a browser's tab`, EDGE, HEIGHT - 34, 19, { colour: colours.soft });

  function bars({ title, unit, lanes }, y) {
    text(`${title}, ${unit}`, EDGE, y, 20, { colour: colours.soft });
    const best = Math.max(...lanes.map(({ median }) => median ?? 0), 1e-9);
    for (const { engine, title: name, median } of lanes) {
      y += 46;
      text(name, EDGE, y - 8, 20, { weight: engine === "halfbyte" ? 700 : 400, room: width - 130 });
      text(median ? figure(median) : "not here", EDGE + width, y - 8, 22, { align: "right", weight: median ? 700 : 400 });
      context.fillStyle = colours.line;
      context.fillRect(EDGE, y, width, 9);
      context.fillStyle = engine === "halfbyte" ? colours.accent : colours.other;
      context.fillRect(EDGE, y, width * (median ?? 0) / best, 9);
    }
    return y + 34;
  }

  function chart() {
    const x = EDGE + width + 50;
    text("Five minutes of heat", x, 178, 20, { colour: colours.soft });
    drawChart(context, { x, y: 205, width: WIDTH - EDGE - x, height: 270, size: 17 }, results.heat, colours);
    text(results.heat.predicted ? `grey: predicted for ${results.heat.predicted.title}` : "", x, 505, 17, { colour: colours.soft, room: WIDTH - EDGE - x });
  }
}
