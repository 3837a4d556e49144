"""Fixtures that several rooms share."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest


def _media_files() -> ModuleType:
    spec = spec_from_file_location("media_files", Path(__file__).with_name("media_files.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def media() -> ModuleType:
    """The writers of small real media files."""
    return _media_files()
