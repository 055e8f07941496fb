"""How models run on devices that are not at hand: memory, speed and heat.

::

    Plan -> work by kind of kernel -> seconds at given rates -> tokens or runs/s, watts
         -> temperatures -> governor -> rates

- `schema` reads TOML tables into dataclasses whose fields say what they may hold, such as
  ``Annotated[Quantity, number(1, 1e8)]``; `profile` and `cooling` are those dataclasses,
  `toml_writer` writes them. A `Quantity` has a value, a range and an origin, and can be drawn:
  all numerical arrays have a leading axis of draws.
- `cost` sums a program's operations and bytes by kind of kernel and bounds each by the processor's
  rates. `kernels` has the fractions of these rates that each kind reaches; `measure` measures them
  on this machine, and `machine` writes its profile. `speed` combines profile and plan: a `Task` (a
  model's `Tokens`, a graph's `Runs`) has the `Pass` that computes a unit of work.
- `timing` runs the decoders and graphs of `reference` and `reference_graphs` for `measure`, here or
  in a tab (``tools/measure_tab.py``); `tab` changes a profile to what a browser tab offers.
- `fit` (language models) and `graphs` (ONNX graphs, planned by ``Runner.plan``) compare memory
  with what a device offers, and try other settings; `smaller` has the sizes that ``quantize`` would
  reach.
- `thermal` is a network of lumped heat, integrated exactly by `propagators`;
  ``tools/fit_thermal.py`` compares it with recordings of a phone.
- `simulate` steps through time, `emulate` along with real work; `stepping` is the device that both
  advance: `workload` is what is asked for, `speed` how long that takes,
  `electricity` the power that it takes, `thermal` the resulting temperatures. `governors` and
  `pacing` decide once a second, from what software can observe; `operating_points` are the choices
  of threads and frequencies. `recording` keeps the series, `summary` and `plot` show them.
- `live` paces real runs, by the `sensors` of this machine and what commands `reports` of it; `adb`
  reads those of a phone, of which `phone` makes a profile. `commands` runs other programs.
- `comparison` predicts all of this for `candidates`, models in types, on many devices; `fleet` for
  devices that are drawn from shares.
"""
