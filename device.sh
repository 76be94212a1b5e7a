timeout 60 python3 -m pytest -q -p no:cacheprovider -p xdist -n 14 tests/test_op_cumulative.py --device cuda 2>&1 | tail -5
timeout 80 python3 -m bench.scan_gpu --rounds 5 --json $OUT/scan/scan_gpu.json 2>&1 | cut -c1-150
