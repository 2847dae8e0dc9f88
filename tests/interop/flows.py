"""Plays the flows: flows.py DAEMON ASTERISK NAMESPACE [FLOW…], started by `asterisk`."""
import sys
import time
import traceback

import calls, settings, transfers  # They fill FLOWS.
from stage import FLOWS, Missed, Stage


def main():
    daemon, root, namespace, *wanted = sys.argv[1:]
    unknown = set(wanted) - set(FLOWS)
    if unknown:
        sys.exit(f"no flow {', '.join(sorted(unknown))}; there are {', '.join(FLOWS)}")
    stage, failed = Stage(daemon, root, namespace), []
    try:
        for name in wanted or FLOWS:
            began = time.monotonic()
            try:
                FLOWS[name](stage)
                print(f"ok      {name}  {time.monotonic() - began:.1f} s", flush=True)
            except Exception as error:
                failed.append(name)
                stage.show()
                print(f"FAILED  {name}: {error}", flush=True)
                if not isinstance(error, Missed):
                    traceback.print_exc()
                stage.recover()
    finally:
        stage.close()
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
