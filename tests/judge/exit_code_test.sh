#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exit_code_test.sh CODE TEXT COMMAND...: the command must end with this code and print the text.
set -u
expected_code=$1
expected_text=$2
shift 2
output=$("$@")
code=$?
printf '%s\n' "$output"
if [ "$code" -ne "$expected_code" ]; then
  echo "exit code $code, expected $expected_code"
  exit 1
fi
case $output in
  *"$expected_text"*) ;;
  *)
    echo "the output lacks: $expected_text"
    exit 1
    ;;
esac
