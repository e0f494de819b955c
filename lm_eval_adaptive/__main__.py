"""``python -m lm_eval_adaptive``: the command line."""

from lm_eval_adaptive.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
