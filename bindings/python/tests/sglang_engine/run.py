# SPDX-License-Identifier: Apache-2.0
"""Starts SGLang's engine on the CPU and prints, as one line of JSON, the logarithms of the prompts'
probabilities: run.py MODEL OPTIONS [NEW_MODEL]. With NEW_MODEL they are printed once more after its
weights have replaced those of the running engine."""

import json
import os
import sys

PROMPTS = [[5, 6, 7, 8], list(range(10, 40)), [900, 3, 17, 4, 950, 22]]


def score(engine):
    outputs = engine.generate(input_ids=PROMPTS, return_logprob=True, logprob_start_len=0,
                              sampling_params={"temperature": 0, "max_new_tokens": 2,
                                               "ignore_eos": True})
    return [entry[0] for out in outputs
            for entry in out["meta_info"]["input_token_logprobs"][1:]]


def main():
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    import sglang
    engine = sglang.Engine(
        model_path=sys.argv[1], device="cpu", attention_backend="torch_native", dtype="bfloat16",
        skip_tokenizer_init=True, sampling_backend="pytorch", disable_cuda_graph=True,
        disable_overlap_schedule=True, disable_radix_cache=True, mem_fraction_static=0.3,
        max_total_tokens=512, max_running_requests=4, log_level="warning",
        **json.loads(sys.argv[2]))
    found = [score(engine)]
    if len(sys.argv) > 3:
        engine.update_weights_from_disk(sys.argv[3])
        found.append(score(engine))
    print("RESULT", json.dumps(found), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
