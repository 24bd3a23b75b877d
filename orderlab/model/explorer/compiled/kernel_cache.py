"""Generated search loops on disk, so that only the first run of a specification in a scope pays for compilation.

The text and its machine code are kept in the user's cache folder, under the digest of everything they depend on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from orderlab.model.cache_folder import cache_folder
from orderlab.model.explorer.compiled.kernel_text import KernelWriter
from orderlab.model.explorer.compiled.layout import layout_of
from orderlab.model.spec.declarative import Specification

FOLDER = "kernels"
"""In the cache folder."""


def load_kernel(text: str) -> ModuleType:
    """Import the generated text from the cache folder, writing it there first if it is new."""
    name = module_name(text)
    if name in sys.modules:
        return sys.modules[name]
    path = cache_folder(FOLDER) / f"{name}.py"
    if not path.exists() or path.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def is_cached(specification: Specification, symmetry: bool, judged: Collection[str] | None = None) -> bool:
    """Whether machine code for this specification in this scope is at hand. Raises NotCompilable where none can be."""
    text = KernelWriter(specification, layout_of(specification.schema_of_state), symmetry, judged).write().text
    return any((cache_folder(FOLDER) / "__pycache__").glob(f"{module_name(text)}.expand-*.nbi"))


def module_name(text: str) -> str:
    inlined = [Path(__file__).with_name(name).read_text() for name in ("hash_table.py", "checked.py")]
    depends_on = [text, *inlined, version("numba"), version("numpy"), sys.version]
    digest = hashlib.sha256("\0".join(depends_on).encode()).hexdigest()
    return f"orderlab_kernel_{digest[:24]}"
