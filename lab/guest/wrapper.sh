# $0: the beginning of file names; the rest: the command. Without bashisms.
exec 3>&2 2>/dev/null
[ -e "$0.i" ] && exec <"$0.i" && rm "$0.i"
(exec "$@" >"$0.o" 2>"$0.e" 3>&-)
code=$?
long=
for output in "$0.o" "$0.e"; do
	[ -s "$output" ] && [ "$(stat -c %s "$output")" -ge 1048576 ] && long=yes
done
[ -s "$0.o" ] && head -c 1048576 "$0.o"
[ -s "$0.e" ] && head -c 1048576 "$0.e" >&3
[ "$long" ] || rm -f "$0.o" "$0.e"
exit "$code"
