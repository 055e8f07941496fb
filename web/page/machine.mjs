// What the browser tells of the real machine: how hard its processor works, and its battery.
const PRESSURE = {
  nominal: "its processor has time to spare",
  fair: "its processor is busy",
  serious: "its processor is warm or overloaded",
  critical: "its processor is about to be slowed down",
};

// Calls `told` with a sentence now and whenever something changes. Browsers may have neither API.
export async function watchMachine(told) {
  const parts = { pressure: "", battery: "" };
  const tell = () => {
    const known = Object.values(parts).filter(Boolean);
    told(known.length ? `This machine now: ${known.join("; ")}.` : "This browser tells nothing of this machine's heat or battery.");
  };
  tell();
  await Promise.all([watchPressure, watchBattery].map((watch) => watch(parts, tell).catch(() => {})));
}

// The Compute Pressure API
async function watchPressure(parts, tell) {
  if (!("PressureObserver" in self)) return;
  const observer = new PressureObserver((records) => {
    parts.pressure = PRESSURE[records.at(-1).state] ?? "";
    tell();
  });
  await observer.observe("cpu", { sampleInterval: 2000 });
}

async function watchBattery(parts, tell) {
  const battery = await navigator.getBattery?.();
  if (!battery) return;
  const read = () => {
    parts.battery = `its battery has ${Math.round(100 * battery.level)} %${battery.charging ? " and is charging" : ""}`;
    tell();
  };
  for (const name of ["levelchange", "chargingchange"]) battery.addEventListener(name, read);
  read();
}
