"""``spark-submit spark_sweeps/main.py FILE``: the command `orderlab sweep` under a session that is there already."""

from __future__ import annotations

import os
import sys
import traceback

if __name__ == "__main__":
    sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(70))  # no verdict: orderlab.exit_codes
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]  # spark-submit puts it there
    if os.path.basename(os.path.dirname(here)) == "orderlab":
        root = os.path.dirname(os.path.dirname(here))
        sys.path.insert(0, root)
        # what sys.path holds does not reach local workers, what the environment holds does
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    from orderlab.spark_sweeps.spark.tasks import unpack_own_zip

    unpack_own_zip()
    from orderlab.cli import main

    sys.argv.insert(1, "sweep")
    main()
