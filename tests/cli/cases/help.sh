# SPDX-License-Identifier: Apache-2.0
run_showing '^ +(judge|plan|tune|score|roofline|inspect|fit|doctor)\b' --help | sed 's|^ *||'
run_showing '^slimgemm [0-9]+\.[0-9]+' --version | sed '/^slimgemm/s/[0-9.]*$/N/'
