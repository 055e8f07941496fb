"""An Android phone at the other end of `adb`: its sensors, clocks and memory, at rest and at work.

`adb` is found on the PATH. Nothing is installed or written on the phone: all is read by its shell,
in which loops keep the cores busy and `dd` fills memory; each ends by itself if the phone is
unplugged. What the phone answers is hostile: outputs have a limit, numbers that no phone can have
count as none, and an answer without its last line is one of a phone that is gone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from halfbyte.device.commands import output_of
from halfbyte.device.sensors import Battery, Clock, Recorded, batteries, clocks, thermal_zones
from halfbyte.errors import HalfbyteError, printable

_LIMIT = 1 << 22
_END = "== end"
_PIECE_S = 5  # seconds of load in one call
_FILES = (
    "class/thermal/thermal_zone*/type", "class/thermal/thermal_zone*/temp",
    "class/thermal/thermal_zone*/trip_point_*", "devices/system/cpu/cpufreq/policy*/related_cpus",
    "devices/system/cpu/cpufreq/policy*/cpuinfo_max_freq",
    "devices/system/cpu/cpufreq/policy*/scaling_*_freq*", "class/power_supply/*/type",
    "class/power_supply/*/scope", "class/power_supply/*/status", "class/power_supply/*/*_now",
    "class/power_supply/*/temp", "class/power_supply/*/*_design",
)  # fmt: skip
_CHANGING = (
    "class/thermal/thermal_zone*/temp", "devices/system/cpu/cpufreq/policy*/scaling_cur_freq",
    "class/power_supply/*/status", "class/power_supply/*/*_now",
)  # fmt: skip
_LINE = re.compile(r"/sys/([\w./:@+-]{1,200}?):(.*)")
_COPIED = re.compile(
    r"^([0-9]{1,15}) bytes .*copied, ([0-9]{1,6}(?:\.[0-9]{1,9})?) s", re.MULTILINE
)
_FILL_BYTES, _FILLS = 1 << 25, 16


def _grep(patterns: tuple[str, ...]) -> str:
    return 'grep -sH "" ' + " ".join(f"/sys/{pattern}" for pattern in patterns)


_READ = f"""
echo "== properties"; getprop
echo "== memory"; grep -s MemTotal /proc/meminfo
echo "== processors"; cat /proc/cpuinfo
echo "== thermal"; dumpsys thermalservice
echo "== files"; {_grep(_FILES)}
echo "{_END}"
"""


@dataclass
class Reading:
    """What a phone said.

    Attributes
    ----------
    properties : dict of str to str
        Android's, such as "ro.product.model".
    parts : dict of str to str
        What `processors`, `memory` and `thermal` printed.
    files : Recorded
        Files below /sys at rest.
    load : list of Recorded
        Those that change, about once a second, while all cores are busy.
    filled : dict of int to float
        Bytes/s of memory that so many processes fill together.
    """

    properties: dict[str, str]
    parts: dict[str, str]
    files: Recorded
    load: list[Recorded] = field(default_factory=list)
    filled: dict[int, float] = field(default_factory=dict)

    @property
    def clocks(self) -> list[Clock]:
        """Its clocks."""
        return clocks(self.files)

    @property
    def battery(self) -> Battery | None:
        """Its battery."""
        return next(iter(batteries(self.files)), None)

    @property
    def cores(self) -> int:
        """Its cores: those of its clocks, else those that are on."""
        numbers = {core for clock in self.clocks for core in clock.cores}
        return len(numbers) or max(
            1, len(re.findall(r"^processor\s*:", self.parts["processors"], re.M))
        )

    def watts(self) -> tuple[float | None, float | None]:
        """What the battery gives at rest, and in the second half of the load; None if charged."""
        battery = self.battery
        if battery is None:
            return None, None
        busy = [
            watts
            for files in self.load[len(self.load) // 2 :]
            if (watts := Battery(battery.name, battery.path, _over(self.files, files)).watts())
        ]
        return battery.watts(), sorted(busy)[len(busy) // 2] if busy else None

    def heat(self) -> list[tuple[str, float, float, float | None]]:
        """Zones with a temperature at rest and at the end of the load, and their limits."""
        last = _over(self.files, self.load[-1]) if self.load else self.files
        after = {zone.path: zone.celsius() for zone in thermal_zones(last)}
        return [
            (zone.name, before, end, zone.limit_c)
            for zone in thermal_zones(self.files)
            if (before := zone.celsius()) is not None and (end := after.get(zone.path)) is not None
        ]


def _over(files: Recorded, later: Recorded) -> Recorded:
    return Recorded({**files.texts, **later.texts})


class Phone:
    """A phone that adb reaches.

    Parameters
    ----------
    serial : str or None
        Which, of several.

    Raises
    ------
    HalfbyteError
        There is no adb, no such phone, or it does not allow this computer yet.
    """

    def __init__(self, serial: str | None = None) -> None:
        path = shutil.which("adb")
        if path is None:
            raise HalfbyteError(
                "--adb: expected the command adb on the PATH, found none; it is in Android's "
                "platform-tools"
            )
        self._adb = path
        self.serial = self._chosen(serial)

    def read(self, seconds: int = 60, step: Callable[[str], object] = lambda _: None) -> Reading:
        """Read it at rest, then with all cores busy for `seconds`; `step` is told what is done.

        Raises
        ------
        HalfbyteError
            The phone is gone, or does not answer as Android does.
        """
        step("reading the phone at rest")
        parts = _sections(self._shell(_READ, 60.0))
        properties = dict(
            re.findall(r"^\[([\w.-]+)\]: \[(.*)\]$", parts.get("properties", ""), re.M)
        )
        if "ro.product.model" not in properties:
            raise HalfbyteError(
                f"--adb: {self.serial}: expected Android's ro.product.model and others, found "
                f"{printable(parts.get('properties', '')[:60].strip() or 'nothing')!r}"
            )
        for name in ("processors", "memory", "thermal"):
            parts.setdefault(name, "")
        reading = Reading(properties, parts, _files(parts.get("files", "")))
        cores = min(reading.cores, 64)
        for count in sorted({1, cores}):
            step(f"filling memory with {count} of {cores} cores")
            reading.filled[count] = self._fill(count)
        for done in range(0, seconds, _PIECE_S):
            step(f"all cores busy, {done} of {seconds} s")
            reading.load += self._load(cores, min(_PIECE_S, seconds - done))
        return reading

    def _fill(self, count: int) -> float:
        """Bytes/s that so many processes fill; 0 if dd does not say."""
        one = f"dd if=/dev/zero of=/dev/null bs={_FILL_BYTES} count={_FILLS} 2>&1"
        many = " ".join(f"{one} &" for _ in range(count))
        text = self._shell(f"{many} wait; echo '{_END}'", 120.0)
        runs = [(int(size), float(s)) for size, s in _COPIED.findall(text)]
        slowest = max((s for _, s in runs), default=0.0)
        if (
            len(runs) != count
            or not 1e-4 < slowest < 120
            or {n for n, _ in runs} != {_FILL_BYTES * _FILLS}
        ):
            return 0.0
        return count * _FILL_BYTES * _FILLS / slowest

    def _load(self, cores: int, seconds: int) -> list[Recorded]:
        """Samples of seconds in which so many loops run; they end even if adb does not."""
        loop = f"timeout {seconds + 2} sh -c 'while :; do :; done' >/dev/null 2>&1 &"
        sample = f"sleep 1; echo '== second'; {_grep(_CHANGING)}"
        script = f"{' '.join([loop] * cores)} " + "; ".join([sample] * seconds)
        text = self._shell(f"{script}; echo '{_END}'", 4.0 * seconds + 30)
        return [_files(part) for part in text.split("== second\n")[1:]]

    def _shell(self, script: str, timeout_s: float) -> str:
        output = output_of([self._adb, "-s", self.serial, "shell", script], timeout_s, _LIMIT)
        text = output.text.replace("\r\n", "\n")
        body, end, _ = text.rpartition(_END)
        if output.code is None:
            raise HalfbyteError(
                f"--adb: {self.serial}: expected an answer of at most {_LIMIT:,} bytes within "
                f"{timeout_s:.0f} s, found {len(output.text):,} bytes and no end"
            )
        if not end:
            found = printable(text.strip().rpartition("\n")[2][:80]) or "no answer"
            raise HalfbyteError(
                f"--adb: {self.serial}: expected the phone to stay connected until its last line, "
                f"found {found!r}"
            )
        return body

    def _chosen(self, serial: str | None) -> str:
        output = output_of([self._adb, "devices"], 30.0)
        _, heading, listed = output.text.replace("\r\n", "\n").partition(
            "List of devices attached\n"
        )
        if not heading:
            found = printable(output.text.strip()[:80]) or "nothing"
            raise HalfbyteError(f"--adb: expected a list of devices from adb, found {found!r}")
        states = dict(line.split(None, 1) for line in listed.splitlines() if len(line.split()) > 1)
        names = ", ".join(printable(name) for name in states)
        if not states:
            raise HalfbyteError(
                "--adb: expected an attached phone, found none: turn on USB debugging in its "
                "developer options, and connect it"
            )
        if serial is None and len(states) > 1:
            raise HalfbyteError(f"--adb: expected one phone, found {names}: choose by --serial")
        serial = next(iter(states)) if serial is None else serial
        if serial not in states:
            raise HalfbyteError(f"--serial {serial}: expected one of the attached: {names}")
        state = states[serial].split()[0]
        if state != "device":
            advice = {
                "unauthorized": "unlock the phone, and allow this computer",
                "offline": "connect it again",
            }.get(state, "`adb devices` should list it as device")
            raise HalfbyteError(
                f"--adb: {printable(serial)}: expected a phone that is ready, found "
                f"{printable(states[serial][:80])!r}: {advice}"
            )
        return serial


def _sections(text: str) -> dict[str, str]:
    """What each command printed, by the name before it."""
    _, *parts = re.split(r"^== (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _files(text: str) -> Recorded:
    """The files that `grep` printed line by line."""
    texts: dict[str, str] = {}
    for match in map(_LINE.fullmatch, text.splitlines()):
        if match:
            path, line = match.groups()
            texts[path] = f"{texts[path]}\n{line}" if path in texts else line
    return Recorded(texts)
