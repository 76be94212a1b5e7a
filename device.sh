timeout 70 python3 -m pytest -q -p no:cacheprovider -p xdist -n 14 tests/test_op_cumulative.py tests/test_many_axes.py tests/test_repeated_calls.py tests/test_math64.py --device cuda 2>&1 | tail -5
timeout 60 python3 -m bench.scan_gpu --rounds 5 --json $OUT/next/scan_gpu.json 2>&1 | cut -c1-120
timeout 90 python3 -m pytest -q -x -p no:cacheprovider tests/test_large.py -k "not sort" --durations=4 --device cuda 2>&1 | tail -12
