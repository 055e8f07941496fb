"""halfbyte in the browser: the page, and a server and an exporter for it.

`site` lists every file of the page: ``page/`` (plain ES modules), Pyodide (`pyodide`), a wheel
packed from the installed package (`wheel`), the lock file that lists the wheel, the model, and the
engines that race with halfbyte (`peers`).
`server` serves the list, ``Site.export`` writes it.

In the page, ``app.mjs`` is the user interface, ``worker.mjs`` runs Pyodide, and `engine` holds the
model; they exchange messages. ``chat.mjs`` is the view of a conversation; `graphs` runs ONNX
models. Jinja's wheels are packed from the machine that serves the page, and loaded when a model has
a chat template. ``start.mjs`` and `start` keep what shortens the next start. ``python.mjs`` starts
the worker again if the browser has ended it (each tab then reloads its model). ``storage.mjs`` asks
for storage that not every window gets. ``sw.js``, registered by ``isolate.mjs``, keeps the
site by its hashes for visits without a network, and makes a page cross-origin isolated on hosts
that do not send the headers.

``page/race/`` compares engines in turns. ``race.mjs`` leads through it; each engine has a module in
``engines/`` (that of halfbyte calls `race`), which ``engine.mjs`` runs in a worker; ``contest.mjs``
has the rules, ``hot.mjs`` the five minutes of heat, and ``card.mjs`` draws the picture.

The browser's functions are called through one JavaScript function that never rejects: a promise
rejected with anything but an ``Error``, such as Chromium's quota errors, would never end in Python.
"""
