"""Tells who runs a script which of the Python packages that it imports are missing, in place of a traceback.

  sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))  # the folder of this file
  import required_packages

  required_packages.check("numpy", "PIL")
  import numpy
"""

import importlib.util
import os
import sys

# By the names under which they are imported, where pip knows them by others.
PIP_NAMES = {"PIL": "pillow", "torch": "torch==2.11.0", "torchvision": "torchvision==0.26.0"}


def check(*modules):
    """Ends the script with one line and exit code 1 if a module cannot be found."""
    missing = [PIP_NAMES.get(name, name) for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        script = os.path.basename(sys.argv[0])
        sys.exit(f"{script}: Python packages are missing; {sys.executable} -m pip install {' '.join(missing)}")
