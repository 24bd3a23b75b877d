"""A hook of MkDocs: what pages name as ``notes/PAGE.md`` between backticks is a link on the site.

In the terminal, in an editor and on a page of a forge the same text is a path.
"""

from __future__ import annotations

import re
from typing import Any

_NAMED = re.compile(r"(?<!\[)`notes/([\w-]+)\.md`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Names of pages as links, outside of blocks of code."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _NAMED.sub(r"[`\1`](\1.md)", part) for part in parts)
