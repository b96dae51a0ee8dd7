#!/bin/sh
# Slurm health check: drains a node on which the job of the report takes longer than on a good node.
#
# slurm.conf:  HealthCheckProgram=/usr/share/detour/slurm/healthcheck.sh
#              HealthCheckInterval=86400
#              HealthCheckNodeState=IDLE
#
# The good node's recording is made once, on an idle node, and copied to all others:
#     detour record --no-probe -d 10s -o /var/lib/detour/baseline.detour
#
# slurmd waits at most a minute for a health check. The exit status is always 0: a check that cannot run
# is no reason to take a node out of service.

DETOUR=/usr/bin/detour
DETOUR_BASELINE=/var/lib/detour/baseline.detour
DETOUR_CHECK_TIME=10s
DETOUR_TOLERANCE=5%
# The job, as options of `detour report`: --ranks 256, or --job /etc/detour/job.toml.
DETOUR_JOB=
DETOUR_DRAIN="scontrol update NodeName=${SLURMD_NODENAME:-$(uname -n | cut -d. -f1)} State=DRAIN"
[ -r /etc/default/detour ] && . /etc/default/detour

[ -x "$DETOUR" ] && [ -r "$DETOUR_BASELINE" ] || exit 0
here=$(mktemp -d) || exit 0
trap 'rm -rf "$here"' EXIT
"$DETOUR" record --quiet --no-probe --duration "$DETOUR_CHECK_TIME" --output "$here/now.detour" || exit 0
# shellcheck disable=SC2086 # Several options.
said=$("$DETOUR" report --quiet --baseline "$DETOUR_BASELINE" --tolerance "$DETOUR_TOLERANCE" \
    $DETOUR_JOB "$here/now.detour" --json) && exit 0
# Status 1 also means that the check could not run; only then is there no result.
longer=$(printf '%s\n' "$said" | sed -n 's/^ *"change_pct": \([0-9]*\).*/\1/p')
[ -n "$longer" ] || exit 0
$DETOUR_DRAIN Reason="detour: a job takes $longer % longer than on a good node"
exit 0
