#!/usr/bin/env bash
# All that needs a GPU, in one command: the tests marked `gpu`, then what
# docs/reference/numbers.md has of it. Needs torch, transformers, triton and pytest; nothing is installed.
#
#   bash benchmarks/gpu.sh TEXT TOKENIZER_FOLDER [tests] [paper] [experts] [large]
#
# TEXT is a file or glob of 1.3 million sentences (150 MB) or more, or less for rougher figures.
# Without a list every part runs: tests 2 minutes, paper 5, experts 2, large 6.
set -u
cd "$(dirname "$0")/.." || exit 2
[ $# -ge 2 ] || { sed -n '2,8p' "$0"; exit 2; }
text=$1 tokenizer=$2
shift 2
[ $# -gt 0 ] || set -- tests paper experts large
export PYTHONUNBUFFERED=1 PYTORCH_ALLOC_CONF=expandable_segments:True
python=${PYTHON:-python3}
failed=""

for part in "$@"; do
    printf '\n# %s\n' "$part"
    case $part in
        tests) "$python" -m pytest -q -p no:cacheprovider -m gpu \
            tests/models/test_spread_over_devices.py tests/scan ;;
        paper) "$python" -m benchmarks.paper_size "$text" --tokenizer "$tokenizer" \
            --budgets 65536 --shards 26 --seconds 240 ;;
        experts) "$python" -m benchmarks.moe --device cuda --warmup 60000 --sentences 16000 --group 2 ;;
        large) "$python" -m benchmarks.large_model "$text" --tokenizer "$tokenizer" --no-figures ;;
        *) echo "no part is called $part"; false ;;
    esac || failed="$failed $part"
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
