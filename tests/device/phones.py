"""A phone behind a fake `adb`, which runs the scripts that it is given on a folder.

/sys, /proc and the phone's own commands are those of the folder; `sleep` warms it, and loops that
would keep cores busy end at once. What it says has the form of a Pixel 6's answers, with values of
`halfbyte/device/profiles/pixel-6.toml`.
"""

from __future__ import annotations

from pathlib import Path

from tests.device.devices import program

SERIAL = "0A041FDD4003EY"
DEVICES = f"List of devices attached\n{SERIAL}\tdevice\n\n"
ZONES = {0: ("BIG", 38000), 1: ("LITTLE", 36000), 2: ("battery", 30000), 3: ("vendor", 0)}
POLICIES = {
    0: ("0 1 2 3", [300000, 574000, 738000, 1803000]), 4: ("4 5", [400000, 1197000, 2253000]),
    6: ("6 7", [500000, 1426000, 2802000]),
}  # fmt: skip
PARTS = ["0xd05"] * 4 + ["0xd0b"] * 2 + ["0xd44"] * 2
_CORE = """processor\t: {number}
BogoMIPS\t: 49.15
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {part}
CPU revision\t: 0

"""
_THERMAL = """IsStatusOverride: false
Thermal Status: 0
Cached temperatures:
\tTemperature{mValue=30.1, mType=2, mName=battery, mStatus=0}
\tTemperature{mValue=33.4, mType=3, mName=VIRTUAL-SKIN, mStatus=0}
HAL Ready: true
Temperature static thresholds from HAL:
\t{.type = BATTERY, .name = battery, .hotThrottlingThresholds = [NaN, NaN, NaN, NaN, NaN, 65.0]}
\t{.type = SKIN, .name = VIRTUAL-SKIN, .hotThrottlingThresholds = [NaN, 39.0, 43.0, 45.0, 47.0]}
"""


def write_phone(folder: Path) -> Path:
    """The phone's files and commands in `folder`; returns that of `adb`."""
    sys, proc = folder / "sys", folder / "proc"
    for number, (name, temp) in ZONES.items():
        zone = sys / f"class/thermal/thermal_zone{number}"
        _write(zone, type=name, temp=temp)
        if name != "vendor":
            _write(zone, trip_point_0_type="passive", trip_point_0_temp=90000)
    for number, (cores, steps) in POLICIES.items():
        _write(
            sys / f"devices/system/cpu/cpufreq/policy{number}", related_cpus=cores,
            cpuinfo_max_freq=steps[-1], scaling_max_freq=steps[-1], scaling_cur_freq=steps[0],
            scaling_available_frequencies=" ".join(map(str, steps)),
        )  # fmt: skip
    _write(
        sys / "class/power_supply/battery", type="Battery", status="Discharging",
        current_now=-280000, voltage_now=3900000, charge_full_design=4614000, temp=301,
    )  # fmt: skip
    _write(proc, meminfo="MemTotal:        7684780 kB\nMemFree: 1 kB")
    cores = "".join(_CORE.format(number=n, part=part) for n, part in enumerate(PARTS))
    _write(proc, cpuinfo=cores)
    _write(
        folder, devices=DEVICES, thermalservice=_THERMAL,
        properties="[ro.product.manufacturer]: [Google]\n[ro.product.model]: [Pixel 6]",
    )  # fmt: skip
    bin_ = folder / "phone-bin"
    program(bin_, "getprop", f"cat {folder}/properties")
    program(bin_, "dumpsys", f"cat {folder}/$1 2>/dev/null")
    program(bin_, "timeout", "exit 0")
    program(bin_, "sleep", f"""
zone={sys}/class/thermal/thermal_zone0/temp
echo $(($(cat $zone) + 3000)) >$zone
echo -1580000 >{sys}/class/power_supply/battery/current_now
for clock in 0/1803 4/2252 6/2802; do
    echo ${{clock#*/}}000 >{sys}/devices/system/cpu/cpufreq/policy${{clock%/*}}/scaling_cur_freq
done
""")  # fmt: skip
    program(folder / "bin", "adb", f"""
if [ "$1" = devices ]; then cat {folder}/devices; exit; fi
calls=$(cat {folder}/calls 2>/dev/null || echo 0)
echo $((calls + 1)) >{folder}/calls
if [ -f {folder}/leaves ] && [ $calls -ge $(cat {folder}/leaves) ]; then
    printf '== properties\\n[ro.product.model]: [Pixel 6]\\n'; echo "error: closed" >&2; exit 1
fi
script=$(printf '%s' "$4" | sed "s#/sys/#{sys}/#g; s#/proc/#{proc}/#g")
PATH={bin_}:/usr/bin:/bin sh -c "$script" 2>&1 | sed "s#{sys}/#/sys/#"
""")  # fmt: skip
    return folder / "bin"


def _write(folder: Path, **texts: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n")
