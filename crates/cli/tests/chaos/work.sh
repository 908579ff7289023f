# One task of the chaos test: work.sh HOME NUMBER WAY BEATS SESSION
home=$1 number=$2 way=$3 beats=$4 session=$5
diary=$home/diaries/$number

# One line is one write at the end of the file, so that two copies could not write into each other's.
say() { echo "$RUNYARD_ATTEMPT $$ $*" >> "$diary"; }

# Everything that is started below inherits the open file, and the lock is free only when the last of them is dead.
exec 9>> "$home/locks/task-$number"
flock -n 9 || say twice
if [ "$session" != none ]; then
    exec 8>> "$home/locks/session-$session"
    flock -n 8 || say beside
fi
say start

case $way in
    leaves) setsid sleep 7411 & ;;
    leaves-silently) setsid sleep 7411 >/dev/null 2>&1 </dev/null & ;;
    forks-twice) (setsid sh -c 'sleep 7411 & sleep 7411' >/dev/null 2>&1 </dev/null &) ;;
    leaves-unmarked) env -i PATH="$PATH" setsid sleep 7411 >/dev/null 2>&1 </dev/null & ;;
    deaf) trap '' TERM ;;
    endless-deaf) trap '' TERM; setsid sh -c 'trap "" TERM; sleep 7411' >/dev/null 2>&1 & ;;
esac

case $way in
    endless*) while :; do sleep 0.3; done ;;
esac

while [ "$beats" -gt 0 ]; do
    say beat
    echo "$beats to go"
    sleep 0.2
    beats=$((beats - 1))
done

if [ "$way" = flaky ] && [ "$(grep -c failed "$diary")" -lt 2 ]; then
    say failed
    exit 3
fi
say end
