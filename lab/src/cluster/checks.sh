#!/bin/bash
# The checks, run on the first machine as root: `checks.sh NAME`. Each prepares what it needs and leaves
# nothing running. Status 0 is passed, 77 skipped, anything else failed. A line `@found TEXT` goes into the
# table, `@skip TEXT` is the reason for skipping.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
work=/root/work
mkdir -p $work
cd $work || exit 1

fail() {
    echo "$*"
    exit 1
}
skip() {
    echo "@skip $*"
    exit 77
}
found() {
    echo "@found $*"
}
# Repeats a command until it succeeds, at most so many seconds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.5
    done
}
other() {
    ssh node2 "$@"
}
report() {
    detour report --json --no-projection "$@" 2>report.err
}
# Whether a recording was ended properly.
whole() {
    report "$1" | jq -e '.truncated == null' >/dev/null
}
# The units whose processes a recording names, one per line.
units_in() {
    report "$1" | jq -r '.sources[] | .unit // empty' | sort -u
}
# A program of its own name that runs in bursts.
bursts() {
    cp -f /usr/local/bin/burn "/usr/local/bin/burn-$1"
    echo "/usr/local/bin/burn-$1 150 20 60"
}
# A oneshot service is never active, only activating.
ended() {
    systemctl show -P ActiveState "$1" | grep -q 'inactive\|failed'
}
stop_units() {
    systemctl stop "$@" 2>/dev/null
    systemctl reset-failed "$@" 2>/dev/null
    true
}

# Whatever a check has started ends with it, also if it fails.
clean_up() {
    systemctl stop 'detour-record@*' 'box-*' 2>/dev/null
    systemctl reset-failed 'detour-record@*' 'box-*' 2>/dev/null
    pkill -x detour
    pkill '^burn'
    mountpoint -q small && umount small
    rm -rf /run/systemd/system/detour-record@.service.d /run/systemd/system/box-*
    systemctl daemon-reload
}
trap clean_up EXIT

#--- package and unit

package_installs_and_leaves_nothing() {
    dpkg --purge detour || fail "cannot remove the package"
    find / -xdev -name '*detour*' -not -path '/root/*' -not -path '/var/lib/private*' \
        -not -path '/var/lib/detour*' -not -path '/var/log/*' >left.txt
    [ -s left.txt ] && fail "left behind: $(cat left.txt)"
    command -v detour && fail "detour is still there"
    dpkg -i /root/payload/detour.deb || fail "cannot install the package"
    dpkg --verify detour || fail "files differ from the package"
    systemctl daemon-reload
    detour --version || fail "detour does not run"
    detour doctor --strict --json >doctor.json || fail "$(cat doctor.json)"
    found "purged without remains, installed again, verified: $(detour --version)"
}

state=/var/lib/private/detour

newest() {
    ls -t $state/*.detour 2>/dev/null | head -n 1
}
is_recording() {
    [ -n "$(newest)" ] && [ "$(stat -c %s "$(newest)")" -gt "${1:-2000}" ]
}
# A drop-in as the unit's head describes it: probes on all emulated CPUs would leave no time for the check.
unit_options() {
    mkdir -p /run/systemd/system/detour-record@.service.d
    printf '[Service]\nEnvironment="DETOUR_OPTIONS=%s"\n' "$*" \
        >/run/systemd/system/detour-record@.service.d/options.conf
    systemctl daemon-reload
}
start_unit() {
    rm -f $state/*.detour
    systemctl start --no-block detour-record@600s || fail "the unit does not start"
    within 200 is_recording || fail "nothing recorded: $(journalctl -n 20 -u detour-record@600s)"
}

unit_records_and_stop_completes_the_file() {
    unit_options -c 1
    start_unit
    sleep 3
    systemctl stop detour-record@600s || fail "cannot stop the unit"
    local result
    result=$(systemctl show -P Result detour-record@600s)
    [ "$result" = success ] || fail "the unit ended with $result"
    whole "$(newest)" || fail "the file is truncated"
    newest | grep -q '/detour-node1-[0-9TZ:-]*\.detour$' || fail "the file is called $(newest)"
    report "$(newest)" >unit.json
    [ "$(jq '[.sources[] | select(.class != "outside_kernel")] | length' unit.json)" -gt 3 ] ||
        fail "no sources: $(jq -c '[.sources[].name]' unit.json)"
    jq -e '.sources[] | select(.class == "timer")' unit.json >/dev/null ||
        fail "no timer interrupt: $(jq -c '[.sources[].name]' unit.json)"
    found "a complete file of $(jq '.duration_s | floor' unit.json) s with" \
        "$(jq '.sources | length' unit.json) sources"
}


unit_killed_and_started_again() {
    unit_options --no-probe
    start_unit
    sleep 2
    local killed sum
    killed=$(newest)
    systemctl kill --signal=KILL detour-record@600s
    within 60 ended detour-record@600s || fail "it still runs"
    [ "$(systemctl show -P Result detour-record@600s)" = signal ] || fail "not killed"
    report "$killed" >killed.json || fail "the file does not open: $(cat report.err)"
    jq -e '.truncated != null' killed.json >/dev/null || fail "the file is not marked as truncated"
    sum=$(sha256sum <"$killed")
    systemctl start --no-block detour-record@600s || fail "it does not start again"
    next_is_recording() {
        [ "$(newest)" != "$killed" ] && is_recording
    }
    within 200 next_is_recording || fail "the second start records nothing: $(journalctl -n 20 -u detour-record@600s)"
    systemctl stop detour-record@600s || fail "cannot stop the unit"
    whole "$(newest)" || fail "the second file is truncated"
    [ "$(sha256sum <"$killed")" = "$sum" ] || fail "the second recording has changed the first"
    found "the file opens and is marked as truncated; the same unit starts again and records"
}

timer_starts_the_unit() {
    unit_options --no-probe
    rm -f $state/*.detour
    mkdir -p /run/systemd/system/detour-record@2s.timer.d
    printf '[Timer]\nOnCalendar=\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n' \
        >/run/systemd/system/detour-record@2s.timer.d/soon.conf
    systemctl daemon-reload
    systemctl start detour-record@2s.timer || fail "the timer does not start"
    timer_has_recorded() {
        [ -n "$(newest)" ] && whole "$(newest)"
    }
    within 120 timer_has_recorded || fail "nothing recorded: $(journalctl -n 20 -u detour-record@2s)"
    systemctl stop detour-record@2s.timer
    found "started by the timer, a complete file of $(report "$(newest)" | jq '.duration_s | floor') s"
}

unit_writes_nowhere_else() {
    unit_options --no-probe
    sync
    touch before
    sleep 1.1
    systemctl start detour-record@2s || fail "the unit does not start"
    # Other file systems too; systemd itself keeps its state in /run.
    find / /run /tmp /dev/shm -xdev -newer before -not -type d -not -path '/var/log/*' \
        -not -path '/var/lib/systemd/*' -not -path '/run/systemd/*' -not -path '/run/log/*' \
        -not -path '/run/udev/*' -not -path "$work/*" >written.txt
    find /sys/fs/bpf -mindepth 1 >>written.txt
    grep -v "^$state/detour-.*\.detour$" written.txt && fail "written elsewhere"
    grep -q "^$state/" written.txt || fail "nothing was written"
    stat -c '%a' $state | grep -q 750 || fail "the directory is $(stat -c %a $state)"
    found "only below its state directory, which others cannot read"
}

unit_is_little_exposed() {
    systemd-analyze security --no-pager detour-record@60s.service >security.txt 2>&1
    local level
    level=$(sed -n 's/.*exposure level for detour-record@60s.service: \([0-9.]*\).*/\1/p' security.txt)
    [ -n "$level" ] || fail "$(tail -n 3 security.txt)"
    jq -en "$level <= 2" >/dev/null || fail "exposure $level of 10"
    found "systemd-analyze security: exposure $level of 10"
}

user_shell() {
    runuser -u ann -- env XDG_RUNTIME_DIR="/run/user/$(id -u ann)" "$@"
}
user_manager() {
    loginctl enable-linger ann
    within 60 test -S "/run/user/$(id -u ann)/bus" || fail "ann has no session bus"
}

units_of_all_kinds_are_named() {
    local here=/run/systemd/system all=(box-simple.service box-once.service box-timed.timer
        box-timed.service box-socket.socket box-socket.service box-scope.scope)
    stop_units "${all[@]}"
    # All of them run until they are stopped, however long it takes to start the last one.
    unit() {
        printf '[Service]\nType=%s\nExecStart=%s\n' "$2" "$(bursts "$1")" >$here/box-"$1".service
    }
    unit simple simple
    unit once oneshot
    unit timed oneshot
    printf '[Timer]\nOnActiveSec=1s\nAccuracySec=100ms\nUnit=box-timed.service\n' >$here/box-timed.timer
    # Inherits the connection as its input.
    unit socket simple
    printf '[Socket]\nListenStream=/run/box.socket\n' >$here/box-socket.socket
    systemctl daemon-reload
    systemctl start box-simple.service box-timed.timer box-socket.socket
    systemctl start --no-block box-once.service
    perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => "/run/box.socket") or die' ||
        fail "cannot connect to the socket"
    # shellcheck disable=SC2046
    systemd-run --quiet --scope --unit=box-scope $(bursts scope) &
    user_manager
    # shellcheck disable=SC2046
    user_shell systemd-run --user --quiet --unit=box-user $(bursts user) || fail "no user unit"
    # A login, as of a user: its processes are in the scope of the session.
    ssh -n -o ControlPath=none node1 "$(bursts login)" &
    within 30 systemctl is-active --quiet box-socket.service || fail "the socket starts nothing"
    within 30 sh -c 'systemctl show -P ActiveState box-timed.service | grep -qx activating' ||
        fail "the timer starts nothing"
    detour record --quiet --no-probe -d 5s -o units.detour || fail "cannot record"
    stop_units "${all[@]}"
    user_shell systemctl --user stop box-user
    pkill '^burn-'
    rm -f $here/box-* /usr/local/bin/burn-*
    systemctl daemon-reload
    wait
    # Each program with its own unit, and with no other.
    report units.detour | jq -r '.sources[] | select(.name | startswith("burn-")) | "\(.name) \(.unit)"' |
        sed 's/ session-[^ ]*\.scope$/ session/' | sort -u >units.txt
    printf 'burn-%s\n' 'login session' 'once box-once.service' 'scope box-scope.scope' \
        'simple box-simple.service' 'socket box-socket.service' 'timed box-timed.service' \
        'user box-user.service' | cmp - units.txt || fail "named: $(tr '\n' ';' <units.txt)"
    found "service, oneshot, timer, socket, scope, user unit and login session"
}

#--- cgroups

busy_unit() { # name, options of systemd-run
    local name=$1
    shift
    stop_units "$name"
    systemd-run --quiet --unit="$name" "$@" /usr/local/bin/burn 120 || fail "cannot start $name"
}

cgroup_by_path_and_by_unit() {
    busy_unit box-busy
    local how
    for how in /system.slice/box-busy.service /sys/fs/cgroup/system.slice/box-busy.service \
        box-busy.service box-busy; do
        detour record --quiet --force --cgroup $how -d 2s -o cgroup.detour || fail "--cgroup $how fails"
        report cgroup.detour | jq -e '[.threads[].name] == ["burn"]' >/dev/null ||
            fail "--cgroup $how: $(report cgroup.detour | jq -c '[.threads[].name]')"
    done
    stop_units box-busy
    detour record --quiet --cgroup box-busy.service -d 1s -o no.detour 2>refused.txt &&
        fail "a unit that does not run was recorded"
    grep -q 'box-busy.service is not a cgroup' refused.txt || fail "$(cat refused.txt)"
    found "absolute path, path below the mount point, unit, service without its suffix; a unit that" \
        "does not run is refused"
}

# The share of the time that a unit's threads were stopped by a quota, in percent.
throttled_pct() {
    report "$1" | jq '[.sources[] | select(.class == "throttled")] as $rows |
        if $rows == [] then 0 else ([$rows[].cost_ns_total] | add) / (.wanted_ns_total) * 100 end |
        floor'
}

cpu_max_is_named() {
    busy_unit box-quota -p CPUQuota=30%
    sleep 1
    detour record --quiet --force --cgroup box-quota.service -d 5s -o quota.detour || fail "cannot record"
    stop_units box-quota
    local share
    share=$(throttled_pct quota.detour)
    [ "$share" -ge 60 ] && [ "$share" -le 80 ] ||
        fail "$share %: $(report quota.detour | jq -c '[.sources[] | [.class, .name, .cost_ns_total]]')"
    found "a service with 30 % of a CPU: throttled for $share % of the time it wanted to run"
}

cgroup_of_a_delegated_user_slice() {
    user_manager
    user_shell systemctl --user stop box-mine 2>/dev/null
    user_shell systemd-run --user --quiet --unit=box-mine -p CPUQuota=30% /usr/local/bin/burn 120 ||
        fail "no user unit"
    sleep 1
    detour record --quiet --force --cgroup box-mine.service -d 5s -o mine.detour || fail "cannot record"
    user_shell systemctl --user stop box-mine
    local share
    share=$(throttled_pct mine.detour)
    [ "$share" -ge 60 ] && [ "$share" -le 80 ] ||
        fail "$share %: $(report mine.detour | jq -c '[.sources[] | [.class, .name, .cost_ns_total]]')"
    found "a user's own unit with 30 % of a CPU: throttled for $share % of the time it wanted to run"
}

cpuset_changes_while_recording() {
    stop_units box-record
    rm -f cpuset.detour moved.detour
    systemd-run --quiet --unit=box-record -p AllowedCPUs=0-1 -p WorkingDirectory=$work \
        -p StandardOutput=truncate:$work/cpuset.json -p StandardError=truncate:$work/cpuset.txt \
        /usr/bin/detour record --quiet -d 12s --json -o cpuset.detour || fail "cannot start"
    within 60 test -s cpuset.detour || fail "nothing recorded"
    sleep 4
    systemctl set-property --runtime box-record.service AllowedCPUs=0
    within 120 ended box-record || fail "it does not end"
    whole cpuset.detour || fail "the file is truncated"
    jq -r '.remarks[]' cpuset.json >remarks.txt
    stop_units box-record
    grep 'CPU 1 was taken away' remarks.txt || fail "no remark: $(cat remarks.txt)"
    # The remark and the windows of both CPUs agree.
    local at
    at=$(sed -n 's/.*CPU 1 was taken away .* after \([0-9.]*\) s .*/\1/p' remarks.txt)
    report cpuset.detour | jq -e "[.cpus[].window_s] | .[0] > 11 and .[0] < 14 and .[1] > 3 and
        (.[1] - ${at:-0} | fabs) < 1" >/dev/null || fail "windows: $(report cpuset.detour | jq -c '[.cpus[].window_s]')"
    # A recorded unit may be moved as well.
    busy_unit box-moved -p AllowedCPUs=0
    detour record --quiet --force --cgroup box-moved.service -d 6s -o moved.detour &
    local recorder=$!
    within 60 test -s moved.detour || fail "the moved unit is not recorded"
    sleep 2
    systemctl set-property --runtime box-moved.service AllowedCPUs=1
    wait $recorder || fail "the recording of a unit that is moved fails"
    stop_units box-moved
    whole moved.detour || fail "the file of the moved unit is truncated"
    report moved.detour | jq -e '(.threads | length) == 1 and .threads[0].window_s > 5' >/dev/null ||
        fail "moved: $(report moved.detour | jq -c .threads)"
    found "$(grep 'CPU 1 was taken away' remarks.txt); a recorded unit that is moved to another CPU is followed"
}

memory_limit_is_respected() {
    busy_unit box-load
    systemd-run --quiet --wait --pipe -p MemoryMax=64M -p MemorySwapMax=0 \
        -p WorkingDirectory=$work sh -c 'detour record --force --no-probe -d 3s -o memory.detour &&
        cat "/sys/fs/cgroup$(cut -d: -f3 </proc/self/cgroup)"/memory.peak >peak.txt' >memory.txt 2>&1 ||
        fail "$(cat memory.txt)"
    stop_units box-load
    whole memory.detour || fail "the file is truncated"
    found "with 64 MiB, beside a load: recorded, peak $(($(cat peak.txt) >> 20)) MiB"
}

#--- container

# The command of the recipe up to the name of the image, which is the same as that of the program.
container_recipe() {
    sed -n '/^# *podman run .*--pid host/,/^# *detour record/p' /root/payload/container/Containerfile |
        sed 's/^# *//; s/\\$//; /^detour record/d' | tr '\n' ' '
}
# Records as `recipe` says, but with these capabilities.
in_container() {
    local capabilities=$1
    shift
    (cd data && eval "${recipe/--cap-add BPF,PERFMON,SYSLOG/--cap-add $capabilities} detour record" '"$@"')
}

container_records_the_host() {
    local recipe
    recipe=$(container_recipe)
    case $recipe in
    *'--cap-add BPF,PERFMON,SYSLOG '*) ;;
    *) fail "the recipe is not found: $recipe" ;;
    esac
    podman build --quiet --network none -t detour /root/payload/container >image.txt 2>&1 ||
        fail "cannot build: $(tail -n 5 image.txt)"
    mkdir -p data
    rm -f data/*
    busy_unit box-host
    in_container BPF,PERFMON,SYSLOG -c 1 -d 3s -o /data/node.detour >container.txt 2>&1 || fail "$(cat container.txt)"
    # Each of them is needed: without one of the first two nothing is recorded, without the third names are missing.
    in_container PERFMON,SYSLOG --no-probe -d 1s -o /data/no.detour >refused.txt 2>&1 && fail "it records without CAP_BPF"
    grep -q CAP_BPF refused.txt || fail "$(cat refused.txt)"
    in_container BPF,SYSLOG --no-probe -d 1s -o /data/no.detour >refused.txt 2>&1 && fail "it records without CAP_PERFMON"
    grep -q CAP_PERFMON refused.txt || fail "$(cat refused.txt)"
    in_container BPF,PERFMON --no-probe -d 2s -o /data/nameless.detour >nameless.txt 2>&1 || fail "$(cat nameless.txt)"
    grep -q CAP_SYSLOG nameless.txt || fail "missing names are not mentioned: $(cat nameless.txt)"
    stop_units box-host
    whole data/node.detour || fail "the file is truncated"
    units_in data/node.detour | grep -qx box-host.service ||
        fail "the host's units are not named: $(units_in data/node.detour | tr '\n' ' ')"
    podman run --rm --network none --cap-drop all -v "$PWD/data":/data:ro detour \
        report --no-projection /data/node.detour >report.txt 2>&1 || fail "$(cat report.txt)"
    found "built without a network, records the host's units with BPF, PERFMON and SYSLOG; without either of" \
        "the first two it refuses and names the missing one, without the third it records and says what is missing"
}

container_without_capabilities_says_so() {
    podman image exists detour || podman build --quiet --network none -t detour \
        /root/payload/container >image.txt 2>&1 || fail "cannot build: $(tail -n 5 image.txt)"
    mkdir -p data
    rm -f data/*
    podman run --rm --network none --read-only --cap-drop all -v "$PWD/data":/data detour \
        record --no-probe -d 1s -o /data/no.detour >refused.txt 2>&1 && fail "it recorded"
    grep -q 'CAP_BPF and CAP_PERFMON' refused.txt || fail "$(cat refused.txt)"
    # The capabilities alone do not suffice where the default filter asks for CAP_SYS_ADMIN.
    podman run --rm --network none --read-only --cap-drop all --cap-add BPF,PERFMON \
        -v "$PWD/data":/data detour record --no-probe -d 1s -o /data/filter.detour >filter.txt 2>&1
    local status=$?
    if [ $status != 0 ]; then
        grep -q 'seccomp' filter.txt || fail "$(cat filter.txt)"
        found "names the missing capabilities; with them, the default seccomp filter is named"
    else
        whole data/filter.detour || fail "the file is truncated"
        found "names the missing capabilities; with them, the default seccomp filter allows recording"
    fi
}

#--- file systems and security modules

disk_full() {
    mkdir -p small
    mountpoint -q small && umount small
    mount -t tmpfs -o size=256k tmpfs small || fail "cannot mount"
    detour record --force -c 1 -T 4x -d 10s -o small/full.detour >full.txt 2>&1
    local status=$?
    report small/full.detour >full.json
    local opened=$?
    umount small
    [ $status != 0 ] || fail "the recording succeeded: $(cat full.txt)"
    grep -qi 'no space left' full.txt || fail "$(cat full.txt)"
    [ $opened = 0 ] || fail "the file does not open: $(cat report.err)"
    jq -e '.truncated != null and .duration_s > 0 and ([.cpus[].detours] | add) > 0' full.json >/dev/null ||
        fail "read: $(jq -c '{truncated, duration_s, cpus}' full.json)"
    found "$(grep -i 'no space left' full.txt | head -n 1 | sed 's/^detour: //')"
}

read_only_root() {
    unshare --mount bash -c 'mount --bind / / && mount -o remount,ro,bind / && cd / &&
        ! touch /root/x 2>/dev/null && detour record --no-probe -d 1s' >readonly.txt 2>&1 &&
        fail "a file was written"
    grep -qi 'read-only file system' readonly.txt || fail "$(cat readonly.txt)"
    unshare --mount bash -c 'mount --bind / / && mount -o remount,ro,bind / && mount -t tmpfs tmpfs /mnt &&
        detour record --quiet --no-probe -d 1s -o /mnt/a.detour && detour report --no-projection \
        --quiet /mnt/a.detour' >tmpfs.txt 2>&1 || fail "$(cat tmpfs.txt)"
    found "refused: $(grep -i 'read-only' readonly.txt | head -n 1 | sed 's/^detour: //'); into a tmpfs it records"
}

no_tracefs() {
    unshare --mount bash -c 'umount -R -q /sys/kernel/tracing; umount -R -q /sys/kernel/debug
        [ -z "$(ls -A /sys/kernel/tracing 2>/dev/null)" ] || exit 9
        detour record --force --no-probe -d 2s --json -o tracing.detour' >tracing.json 2>tracing.txt
    local status=$?
    [ $status != 9 ] || fail "tracefs is still mounted"
    [ $status = 0 ] || fail "$(cat tracing.txt)"
    whole tracing.detour || fail "the file is truncated"
    local sources
    sources=$(report tracing.detour | jq '.sources | length')
    [ "$sources" -gt 3 ] || fail "$sources sources"
    found "recorded without it, $sources sources$(jq -r '.remarks[] | select(test("trac")) | "; " + .' tracing.json)"
}

apparmor_denial_is_named() {
    [ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ] || skip "this kernel has no AppArmor"
    cp /usr/bin/detour /usr/local/bin/confined
    # Records in a profile that allows or denies CAP_BPF, and nothing else is different.
    confined() {
        cat >/run/confined <<END
abi <abi/3.0>,
profile confined /usr/local/bin/confined {
  file,
  signal,
  unix,
  capability perfmon,
  capability syslog,
  capability ipc_lock,
  $1 capability bpf,
  audit deny capability sys_admin,
}
END
        apparmor_parser --replace /run/confined || fail "cannot load the profile"
        /usr/local/bin/confined record --force --no-probe -d 1s -o no.detour >apparmor.txt 2>&1
        local status=$?
        apparmor_parser --remove /run/confined
        return $status
    }
    confined allow || fail "it does not record although CAP_BPF is allowed: $(cat apparmor.txt)"
    confined 'audit deny' && fail "it recorded: $(cat apparmor.txt)"
    rm -f /usr/local/bin/confined
    grep -q "AppArmor profile 'confined'" apparmor.txt || fail "$(cat apparmor.txt)"
    dmesg | grep -q 'apparmor="DENIED".*profile="confined".*capname="bpf"' ||
        fail "the kernel denied something else: $(dmesg | tail -n 5)"
    found "refused, with the name of the profile; recorded when it allows CAP_BPF"
}

seccomp_denial_is_named() {
    systemd-run --quiet --wait --pipe -p SystemCallFilter=~bpf -p SystemCallErrorNumber=EPERM \
        -p WorkingDirectory=$work detour record --force --no-probe -d 1s -o no.detour >seccomp.txt 2>&1 &&
        fail "it recorded: $(cat seccomp.txt)"
    grep -q 'seccomp filter' seccomp.txt || fail "$(cat seccomp.txt)"
    found "refused, with the filter as the reason"
}

selinux() {
    skip "Debian runs AppArmor, which excludes it, and SELinux denies nothing without a policy for the whole" \
        "system, which Debian does not install"
}

record_on_other() {
    other "cd /root && detour record --force --no-probe -d 2s --json -o locked.detour" >locked.json 2>locked.txt
}
# Locks the second machine down, on which recording works until then. It can be locked further; only a restart
# unlocks it.
lock_down_other() {
    within 180 other true || fail "the second machine does not answer"
    other "grep -q '\[confidentiality\]' /sys/kernel/security/lockdown" && restart_other
    record_on_other || fail "it does not record before: $(cat locked.txt)"
    other "dmesg --clear; echo $1 >/sys/kernel/security/lockdown && grep -q '\[$1\]' /sys/kernel/security/lockdown" ||
        fail "cannot lock the machine down"
}

lockdown_integrity() {
    lock_down_other integrity
    record_on_other || fail "$(cat locked.txt)"
    other "detour report --json --no-projection /root/locked.detour" >report.json 2>locked.txt ||
        fail "$(cat locked.txt)"
    [ "$(jq '.sources | length' report.json)" -gt 3 ] || fail "no sources"
    found "recorded, $(jq '.sources | length' report.json) sources$(
        jq -r '.remarks[] | "; " + .' locked.json | head -n 2 | tr -d '\n')"
}

lockdown_confidentiality() {
    lock_down_other confidentiality
    record_on_other && fail "it recorded"
    grep -q 'lockdown' locked.txt || fail "the reason is not given: $(cat locked.txt)"
    other dmesg | grep -q 'Lockdown: .*use of bpf' || fail "the kernel denied something else: $(other dmesg)"
    found "refused: $(head -n 1 locked.txt | sed 's/^detour: //')"
}

# As if its power was cut: nothing is written back.
cut_power_of_other() {
    timeout 10 ssh -o ControlPath=none node2 'echo b >/proc/sysrq-trigger' </dev/null
    ssh -O exit node2 2>/dev/null
    true
}
restart_other() {
    cut_power_of_other
    sleep 10
    within 400 timeout 30 ssh -o ConnectTimeout=20 node2 true || fail "the second machine does not come back"
    other 'systemctl is-system-running --wait' >/dev/null
    true
}

#--- suspend

suspend_to_ram_is_an_incident() {
    grep -q mem /sys/power/state || skip "this machine cannot be suspended"
    [ -e /sys/class/rtc/rtc0/wakealarm ] || skip "no clock can wake this machine"
    # Not to idle, where the CPUs only sleep.
    echo deep >/sys/power/mem_sleep
    grep -q '\[deep\]' /sys/power/mem_sleep || skip "this machine can only be suspended to idle"
    local before after
    before=$(awk '{print int($1)}' /proc/uptime)
    detour record --force -c 1 -d 25s --json -o suspend.detour >suspend.json 2>suspend.txt &
    local recorder=$!
    within 60 test -s suspend.detour || fail "nothing recorded: $(cat suspend.txt)"
    sleep 4
    echo 0 >/sys/class/rtc/rtc0/wakealarm
    echo +20 >/sys/class/rtc/rtc0/wakealarm
    echo mem >/sys/power/state 2>mem.txt || {
        kill $recorder
        fail "cannot suspend: $(cat mem.txt; dmesg | tail -n 5)"
    }
    wait $recorder || fail "$(cat suspend.txt)"
    after=$(awk '{print int($1)}' /proc/uptime)
    whole suspend.detour || fail "the file is truncated"
    jq -r '.remarks[]' suspend.json >remarks.txt
    local slept longest
    slept=$(sed -n 's/.*the machine was suspended for \([0-9]*\)\..*/\1/p' remarks.txt)
    [ -n "$slept" ] || fail "not reported after $((after - before)) s: $(cat remarks.txt; dmesg | tail -n 8)"
    [ "$slept" -ge 5 ] || fail "suspended for only $slept s"
    report suspend.detour >suspended.json
    longest=$(jq '[.cpus[].longest_ns] | max' suspended.json)
    # What was watched is without the suspension, and so are all detours together.
    jq -e '.duration_s > 22 and .duration_s < 28' suspended.json >/dev/null ||
        fail "$(jq .duration_s suspended.json) s watched"
    [ "$longest" -lt 2000000000 ] || fail "a detour of $longest ns"
    jq -e '([.cpus[].detour_ns_total] | add) < .duration_s * 1e9 and
        ([.sources[].cost_ns_total] | add) < .duration_s * 1e9' suspended.json >/dev/null ||
        fail "more time was taken than watched: $(jq -c '[.cpus[].detour_ns_total]' suspended.json)"
    found "suspended for $slept s, which is reported; $(jq '.duration_s | floor' suspended.json) s were watched, the" \
        "longest detour took $((longest / 1000000)) ms"
}

#--- MPI between machines

hosts=node1,node2
mpi() { # library, ranks per machine, command...
    local library=$1 each=$2
    shift 2
    case $library in
    openmpi)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
            PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout "${limit:-240}" mpirun.openmpi --bind-to none \
            --host "node1:$each,node2:$each" --mca btl tcp,self --mca btl_tcp_if_include eth0 \
            -n $((2 * each)) "$@"
        ;;
    mpich)
        timeout "${limit:-240}" mpiexec.hydra -launcher ssh -iface eth0 -hosts "node1:$each,node2:$each" \
            -n $((2 * each)) "$@"
        ;;
    esac
}

# A run on both machines, with the parts of both in one directory.
traced() { # directory, library, options of mpi record, steps, milliseconds, what starts the program
    local run=$1 library=$2 options=$3
    rm -rf "$run" parts
    other "rm -rf $work/$run; mkdir -p $work"
    # shellcheck disable=SC2086
    mpi "$library" 1 detour mpi record $options -o "$work/$run" -- ${6:-} "steps-$library" "$4" "$5" >mpi.txt 2>&1 ||
        fail "mpirun failed: $(tail -n 15 mpi.txt)"
    mkdir -p parts
    scp -q -r "node2:$work/$run" parts/two || fail "cannot copy"
    mv "$run" parts/one
    detour merge parts/one parts/two -o "$run" >merge.txt 2>&1 || fail "$(cat merge.txt)"
}

# A busy host delays every exchange of the measurement, which only makes the residual larger: up to three runs.
clocks() { # library
    local run=run-$1 residual drift fastest
    # One clock was set 300 ppm fast, the other 100 ppm slow. The offsets at both ends of a run of ten
    # seconds or more are uncertain by tenths of a millisecond.
    are_corrected() {
        [ "$residual" -lt "$fastest" ] && [ "$drift" -gt 370 ] && [ "$drift" -lt 430 ]
    }
    for _ in 1 2 3; do
        traced "$run" "$1" "" 3000 3
        detour mpi report --json "$run" >profile.json || fail "no report"
        jq -c '{ranks_read, unfinished_ranks, messages, lost, hosts, clock_contradiction_ns}' profile.json
        jq -e '.ranks_read == 2 and (.hosts | length) == 2 and .lost.unmatched_messages == 0 and
            .messages >= 6000' profile.json >/dev/null || fail "the run is incomplete"
        jq -e '.lost.reversed_messages == 0 and .clock_contradiction_ns == 0' profile.json >/dev/null ||
            fail "messages arrive before they were sent"
        residual=$(jq '[.hosts[].residual_ns | values] | max' profile.json)
        fastest=$(jq '[.hosts[].fastest_ns | values] | min' profile.json)
        drift=$(jq '.hosts[1].drift_ppm | round' profile.json)
        are_corrected && break
    done
    are_corrected || fail "residual $residual ns, the fastest message takes $fastest ns one way; a relative drift of" \
        "$drift ppm, 400 were set"
    # How far the clocks drift apart during the run: if this was not corrected, messages would arrive early.
    local apart
    apart=$(jq '.hosts[1].drift_ppm * .wall_s | floor' profile.json)
    [ $((apart * 1000)) -gt $((2 * fastest)) ] || fail "the clocks drift by $apart us only"
    found "no message arrives early, although the clocks drift apart by $apart us; drift $drift ppm; residual" \
        "$((residual / 1000)) us, the fastest message takes $((fastest / 1000)) us one way"
}

latencies() {
    mpi "$1" 1 detour mpi latency --exchanges 50 --cycles 10 -o "$work/latency-$1.json" >latency.txt 2>&1 ||
        fail "$(tail -n 15 latency.txt)"
}

mpi_clocks_openmpi() {
    clocks openmpi
}
mpi_clocks_mpich() {
    clocks mpich
}

mpi_latency_between_machines() {
    local library said=
    for library in openmpi mpich; do
        rm -f "latency-$library.json"
        latencies $library
        jq -e '.ranks == 2 and .hosts == ["node1", "node2"] and .all.n >= 500 and .all.minimum_us > 1' \
            "latency-$library.json" >/dev/null || fail "$(jq -c 'del(.all.bins)' "latency-$library.json" | head -c 400)"
        said="$said $library: fastest $(jq '.all.minimum_us | floor' "latency-$library.json") us, median $(
            jq '.all.median_us | floor' "latency-$library.json") us;"
    done
    found "exchanges of one byte:${said%;}"
}

mpi_net_between_machines() {
    local library message fastest usual said=
    for library in openmpi mpich; do
        rm -f net.toml
        limit=400 mpi $library 1 detour mpi net -d 5s --largest 16KiB -o "$work/net.toml" >net.txt 2>&1 ||
            fail "$library: $(tail -n 15 net.txt)"
        # A message takes os + L + or. On emulated machines the overheads are most of it, and L, which is what is left,
        # can be next to nothing; while they wait for a CPU, the usual message takes several times the fastest one.
        [ -s "latency-$library.json" ] || latencies $library
        # The first of each: those of the fastest messages follow.
        message=$(awk -F ' *= *' '/^(L|os|or)_us *=/ && !seen[$1]++ { sum += $2 } END { print sum }' net.toml)
        fastest=$(jq .all.minimum_us "latency-$library.json")
        usual=$(jq .all.median_us "latency-$library.json")
        jq -en "$message > $fastest / 3 and $message < $usual * 2" >/dev/null ||
            fail "$library: a message takes $message us, exchanges $fastest us at least, $usual us usually"
        detour simulate collective --ranks 16 --runs 2 --noise periodic:100Hz,10us --net net.toml \
            >/dev/null 2>net.err || fail "$(cat net.err)"
        said="$said $library $(printf %.0f "$message") us;"
    done
    found "os + L + or:${said%;}; the files are accepted by --net"
}

mpi_blames_a_daemon_on_the_other_machine() {
    other "pkill -x remoted; cp /usr/local/bin/burn /usr/local/bin/remoted"
    # On the CPU of the other machine's rank, which cannot escape; the recorder has the other CPU.
    other "systemctl stop remoted 2>/dev/null; systemd-run --quiet --unit=remoted -p Nice=-10 \
        taskset -c 1 /usr/local/bin/remoted 600 100 200"
    traced run-noise openmpi --noise 300 10 "taskset -c 1"
    other "systemctl stop remoted; rm -f /usr/local/bin/remoted"
    detour blame --json run-noise >blame.json || fail "no blame"
    jq -c '{waiting_s, causes, sources: [.sources[:4][] | {name, unit, host, share_pct}]}' blame.json
    jq -e '.sources[0] | .host == "node2" and .name == "remoted" and .unit == "remoted.service" and
        .share_pct >= 25' blame.json >/dev/null || fail "another source comes first, or it is too little"
    found "$(jq -r '[.sources[] | select(.name == "remoted")] |
        "remoted on \(.[0].host): \([.[].share_pct] | add | round) % of all waiting"' blame.json), the" \
        "recorder itself $(jq '[.sources[] | select(.own) | .share_pct] | add // 0 | round' blame.json) %"
}

wall_clocks_that_differ_are_noticed() {
    local apart
    apart=$(($(date +%s) - $(other date +%s)))
    [ "${apart#-}" -gt 3600 ] || skip "the wall clocks agree"
    rm -f clock-*.detour
    other "cd /root && detour record --quiet --force --no-probe -d 4s -o clock-two.detour" &
    detour record --quiet --no-probe -d 4s -o clock-one.detour || fail "cannot record"
    wait
    scp -q node2:/root/clock-two.detour . || fail "cannot copy"
    detour merge clock-one.detour clock-two.detour -o clock-both.detour 2>merge.txt &&
        fail "recordings that are hours apart by their clocks were merged"
    grep -q 'clock-two.*clocks of its nodes differ' merge.txt ||
        grep -q 'clock-one.*clocks of its nodes differ' merge.txt || fail "the reason is not given: $(cat merge.txt)"
    detour merge --json --force clock-one.detour clock-two.detour -o clock-both.detour >merged.json 2>forced.txt ||
        fail "cannot merge with --force: $(cat forced.txt)"
    jq -e '.nodes | sort == ["node1", "node2"]' merged.json >/dev/null || fail "$(cat merged.json)"
    found "recorded at the same time, $((${apart#-} / 3600)) hours apart by their clocks: refused, $(
        head -n 1 merge.txt | sed 's/^detour: //'); merged with --force"
}

#--- Slurm

start_slurm() {
    sinfo --noheader --format=%T 2>/dev/null | grep -qx idle && return
    # Credentials carry the time, so the wall clocks agree from here on; the drift stays.
    other "date --set=@$(date +%s)" >/dev/null
    systemctl start munge
    other systemctl start munge
    systemctl start slurmctld slurmd || fail "slurmd: $(journalctl -n 20 -u slurmd -u slurmctld)"
    other systemctl start slurmd || fail "$(other journalctl -n 20 -u slurmd)"
    within 180 both_idle || fail "$(sinfo -N -l; tail -n 20 /var/log/slurm/*)"
}
both_idle() {
    [ "$(sinfo --noheader -N --format=%T 2>/dev/null | sort | uniq -c | tr -s ' ')" = " 2 idle" ]
}

job_files() {
    ls /var/lib/detour/jobs/*.detour 2>/dev/null
    other 'ls /var/lib/detour/jobs/*.detour 2>/dev/null'
}

slurm_prolog_and_epilog_record_a_job_on_both_nodes() {
    start_slurm
    rm -rf /var/lib/detour/jobs
    other 'rm -rf /var/lib/detour/jobs'
    timeout 200 srun -N2 --ntasks-per-node=1 --comment=detour /usr/local/bin/burn 60 ||
        fail "srun failed"
    # srun does not wait for the epilog.
    sleep 10
    rm -rf jobs
    mkdir -p jobs
    cp /var/lib/detour/jobs/*.detour jobs/ || fail "nothing recorded here: $(cat /var/lib/detour/jobs/errors.log)"
    scp -q 'node2:/var/lib/detour/jobs/*.detour' jobs/ || fail "nothing recorded on the other node"
    local file
    for file in jobs/*.detour; do
        within 30 whole "$file" || fail "$file is truncated"
        report "$file" | jq -c '[.mode, [.threads[].name]]'
        report "$file" | jq -e '[.threads[].name] | index("burn")' >/dev/null ||
            fail "$file does not have the job's process"
    done
    [ "$(ls jobs/*.detour | wc -l)" = 2 ] || fail "$(ls jobs)"
    detour merge --json jobs/*.detour -o jobs/all.detour >merged.json || fail "cannot merge"
    jq -e '.nodes | sort == ["node1", "node2"]' merged.json >/dev/null || fail "$(cat merged.json)"
    both_idle || within 60 both_idle || fail "a node was drained: $(sinfo -N -l)"
    found "a file of the job's own processes per node, complete, merged; no node drained"
}

slurm_srun_record() {
    start_slurm
    local shared=$work/srun
    rm -rf $shared
    mkdir -p $shared
    other "rm -rf $shared; mkdir -p $shared"
    timeout 200 srun -N2 --ntasks-per-node=1 --chdir=$shared detour record --quiet --no-probe -d 5s ||
        fail "srun failed"
    scp -q "node2:$shared/*.detour" $shared/ || fail "the other node has no file"
    ls $shared
    [ "$(ls $shared/detour-*-node1-0-*.detour $shared/detour-*-node2-1-*.detour | wc -l)" = 2 ] ||
        fail "file names lack job, host or rank"
    local file
    for file in $shared/*.detour; do
        whole "$file" || fail "$file is truncated"
        [ "$(report "$file" | jq '.sources | length')" -gt 3 ] || fail "$file has no sources"
    done
    rm -f merged.detour
    detour merge --json $shared/*.detour -o merged.detour >merged.json || fail "cannot merge"
    jq -e '.nodes | sort == ["node1", "node2"]' merged.json >/dev/null || fail "$(cat merged.json)"
    found "a file per node, named by job, host and rank; merged"
}

slurm_job_array_of_shards() {
    start_slurm
    local what="simulate collective --ranks 2..256 --runs 32 --noise periodic:1000Hz,100us"
    rm -rf array
    mkdir -p array
    other "rm -rf $work/array; mkdir -p $work/array"
    printf '#!/bin/sh\nexec detour %s --shard $SLURM_ARRAY_TASK_ID/4 -o %s/array/$SLURM_ARRAY_TASK_ID.json\n' \
        "$what" $work >array.sh
    timeout 300 sbatch --wait --array=1-4 --exclusive --output=/dev/null array.sh || fail "sbatch failed"
    # Each node has the shards that ran on it.
    local here
    here=$(ls array | wc -l)
    [ "$here" -ge 1 ] && [ "$here" -le 3 ] || fail "$here of 4 shards ran on the first node"
    scp -q "node2:$work/array/*.json" array/ || fail "no shard ran on the second node"
    [ "$(ls array | wc -l)" = 4 ] || fail "shards: $(ls array)"
    detour merge --json array/*.json | grep -v messages_per_s >joined.json
    # shellcheck disable=SC2086
    detour $what --json | grep -v messages_per_s >complete.json
    [ -s complete.json ] || fail "nothing was simulated"
    cmp joined.json complete.json || fail "the shards give different results"
    found "four shards on two nodes, joined: byte for byte the output of one process, apart from the speed"
}

slurm_node_switched_off_in_a_job() {
    start_slurm
    rm -rf /var/lib/detour/jobs
    other 'rm -rf /var/lib/detour/jobs'
    timeout 400 srun -N2 --ntasks-per-node=1 --comment=detour /usr/local/bin/burn 90 >job.txt 2>&1 &
    local job=$!
    within 90 other 'ls /var/lib/detour/jobs/*.detour' || fail "no recording: $(cat job.txt)"
    sleep 40
    cut_power_of_other
    wait $job
    echo "srun: status $?, $(tail -n 3 job.txt)"
    sleep 5
    within 400 timeout 30 ssh -o ConnectTimeout=20 node2 true || fail "the node does not come back"
    rm -rf jobs
    mkdir -p jobs
    cp /var/lib/detour/jobs/*.detour jobs/ || fail "nothing recorded here"
    scp -q 'node2:/var/lib/detour/jobs/*.detour' jobs/ || fail "the other node's file is gone"
    ls -l jobs
    local lost
    whole "$(ls jobs/*node1*)" || fail "the file of the node that stayed is truncated"
    lost=$(ls jobs/*node2*)
    report "$lost" >lost.json || fail "its file does not open: $(cat report.err)"
    jq -e '.truncated != null and .duration_s > 25' lost.json >/dev/null ||
        fail "$(jq -c '{truncated, duration_s}' lost.json)"
    detour merge jobs/*.detour -o jobs/all.detour >merge.txt 2>&1 || fail "$(cat merge.txt)"
    cat merge.txt
    grep '^node2: the recording ends after' merge.txt >gap.txt || fail "the gap is not named"
    found "its file opens, $(jq '.duration_s | floor' lost.json) s of it; merge says: $(cat gap.txt)"
}

#---

name=${1:?"usage: checks.sh NAME"}
"$name"
