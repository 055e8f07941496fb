"""The memory planned by `halfbyte fit --tab`, compared with the growth of a tab's heap."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches.browser.cost import LOAD
from benches.browser.python import python_site
from playwright.sync_api import Browser
from tests.browser.conftest import Python
from tests.support.http_server import in_thread

from halfbyte.device.fit import Fitter
from halfbyte.device.profile import load_profile
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Given
from halfbyte.web.server import Server


@pytest.mark.browser
def test_the_heap_grows_as_planned(large_model: Path, wheel: Path, browser: Browser) -> None:
    assert wheel.exists()  # and so do the kernels
    path = large_model
    fitter = Fitter(open_model(path), load_profile("pixel-6"), tab=True)
    planned = fitter.fit("baseline", Given(context=512)).asked.total
    context = browser.new_context()
    with in_thread(Server(python_site({path.name: path}))) as server:
        tab = Python(context.new_page(), server.address, "", "worker")
        taken, heap = tab.run(LOAD.format(name=path.name, context=512, prompt=128))
    context.close()
    assert 0.96 < taken / planned < 1  # a plan leaves room
    assert heap < 1.2 * planned  # it grows by a fifth
