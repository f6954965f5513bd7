"""How a user installs the optional requirements of this package."""

import importlib.metadata
import shlex


def install_command(extra: str) -> str:
    """Returns the command that installs the requirements of an extra, such as 'video'.

    It names the requirements and not this package, which no package index has: another package of
    its name there would be a stranger's.
    """
    try:
        requirements = importlib.metadata.requires('object-detection-toolkit') or []
    except importlib.metadata.PackageNotFoundError:  # a source tree that is not installed
        requirements = []
    parts = (each.partition(';') for each in requirements)
    names = [name.strip() for name, _, marker in parts if f'extra == "{extra}"' in marker]
    # A source tree may be newer than what is installed.
    return f'pip install {shlex.join(names or [f".[{extra}]"])}'
