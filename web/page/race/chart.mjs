// The chart of the heat, drawn with a canvas's context: the same for the page and for the picture.
const MINUTES = 5;

// `data` is {samples: [{at, speed}], predicted: {seconds, low, median, high}}, times in seconds.
export function drawChart(context, { x, y, width, height, size }, data, colours) {
  const predicted = data.predicted;
  const speeds = [...data.samples.map(({ speed }) => speed), ...(predicted ? [...predicted.median, ...predicted.high.map((v) => 0.6 * v)] : [])];
  const top = nice(1.08 * Math.max(1e-9, ...speeds));
  const left = x + size * 3.6, bottom = y + height - size * 1.7;
  const at = (seconds) => left + (x + width - left - 2) * Math.min(1, seconds / (60 * MINUTES));
  const up = (speed) => bottom - (bottom - y - 1.8 * size) * Math.min(1, speed / top);
  context.save();
  context.font = `${size}px system-ui, sans-serif`;
  axes();
  if (predicted) band();
  line(data.samples.map(({ at: seconds, speed }) => [at(seconds), up(speed)]), colours.accent, size / 5);
  context.restore();

  function axes() {
    context.lineWidth = 1;
    context.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) {
      context.strokeStyle = colours.line;
      path([[left, up(share * top)], [x + width, up(share * top)]]);
      context.stroke();
      context.fillStyle = colours.soft;
      context.textAlign = "right";
      context.fillText(short(share * top), left - size * 0.6, up(share * top));
    }
    context.textBaseline = "alphabetic";
    const last = `${MINUTES} min`, free = x + width - context.measureText(last).width - size;
    for (let minute = 0; minute <= MINUTES; minute++) {
      if (minute < MINUTES && at(60 * minute) > free) continue;  // no "4 5 min" in a narrow chart
      context.textAlign = minute === MINUTES ? "right" : "center";
      context.fillText(minute === MINUTES ? last : String(minute), at(60 * minute), bottom + size * 1.5);
    }
    context.textAlign = "left";
    context.fillText("tokens/s", left, y + size);
  }

  function band() {
    const points = (values) => values.map((value, i) => [at(predicted.seconds[i]), up(value)]);
    const from = (values) => [[at(0), up(values[0])], ...points(values)];
    context.fillStyle = colours.band;
    path([...from(predicted.high), ...from(predicted.low).reverse()]);
    context.fill();
    line(from(predicted.median), colours.soft, size / 8);
  }

  function line(points, colour, thickness) {
    if (!points.length) return;
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    context.lineJoin = context.lineCap = "round";
    path(points);
    context.stroke();
  }

  function path(points) {
    context.beginPath();
    points.forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
  }
}

// The next of 1, 2, 4, 5, 8 times a power of ten.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 4, 5, 8].find((step) => step * power >= value) ?? 10);
}

const short = (value) => (value >= 1000 ? `${Number((value / 1000).toPrecision(3))}k` : String(Number(value.toPrecision(3))));

// Colours of the page as it is shown now, light or dark.
export function pageColours() {
  const probe = document.body.appendChild(document.createElement("i"));
  const resolve = (text) => {
    probe.style.color = text;
    return getComputedStyle(probe).color;
  };
  const colours = {
    ...Object.fromEntries(["ink", "soft", "page", "card", "line", "accent"].map((name) => [name, resolve(`var(--${name})`)])),
    band: resolve("color-mix(in srgb, var(--ink) 13%, transparent)"),
    other: resolve("color-mix(in srgb, var(--ink) 32%, var(--card))"),
  };
  probe.remove();
  return colours;
}
