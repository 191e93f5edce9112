"""The short form of ``make leaks``."""

import os

import leaks


def test_opens_return_what_they_take(tmp_path):
    warm, end = leaks.run(int(os.environ.get("EXTANT_OPENS", "2000")), tmp_path)
    assert end[0] <= warm[0] + leaks.SLACK and end[1:] == warm[1:], (warm, end)
