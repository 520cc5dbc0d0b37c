"""The public names of `lakelog.spark`."""

from __future__ import annotations

import pytest

import lakelog.spark


@pytest.mark.parametrize("name", lakelog.spark.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert callable(getattr(lakelog.spark, name))
