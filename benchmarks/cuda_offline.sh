#!/bin/sh
# The GPU benchmark on a machine with numpy, scipy, torch and nvcc that reaches no package registry.
#
#   cuda_offline.sh fetch WHEELS VERSION       download what it needs, for that version of Python
#   cuda_offline.sh run WHEELS RESULTS ...     install that in a folder of its own, and run with ...
#
# pycuda has no wheels: put one into WHEELS that docs/cuda.md builds. A run goes on with the rows that
# RESULTS has. The numpy, scipy and torch that are there are used as they are.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
mode=$1 wheels=$2
shift 2

case $mode in
fetch)
    python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$1" \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --dest "$wheels" \
        'ml_dtypes>=0.5,<1' 'islpy>=2025.2,<2027' 'sqlalchemy>=2.1,<2.2' 'alembic>=1.18,<2' \
        'xgboost-cpu>=3.0,<4' 'rich>=13.8,<16' 'psutil>=6,<8' \
        mako markdown-it-py markupsafe mdurl platformdirs pygments pytools siphash24 \
        typing_extensions
    ;;
run)
    results=$1
    shift
    packages=$(mktemp -d)
    trap 'rm -rf "$packages"' EXIT
    python3 -m pip install --quiet --no-index --no-deps --target "$packages" "$wheels"/*.whl
    ln -s "$root" "$packages/tilewright"
    mkdir -p "$results"
    results=$(cd "$results" && pwd)
    cd "$root"
    PYTHONPATH="$packages" python3 -m benchmarks.cuda --resume --json "$results/rows.jsonl" \
        --db "$results/tuning.db" "$@"
    ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
