# Runs the script of a booking as its owner, and ends as it ended.

umask 077
mkdir -p "$FOLDER"
stem=$FOLDER/$NAME.$SLURM_JOB_ID
# Nobody else's file is written to, wherever the folder is.
set -o noclobber
{ : > "$stem.log" && printf %s "$TEXT" | base64 --decode > "$stem.sh"; } 2>/dev/null || exit 73
set +o noclobber
unset TEXT
case $(head --bytes=2 "$stem.sh") in
  '#!') chmod 700 "$stem.sh"; command=("$stem.sh") ;;
  *) command=(bash "$stem.sh") ;;
esac
cd "$HOME" 2>/dev/null || cd /
"${command[@]}" >> "$stem.log" 2>&1 < /dev/null &
child=$!
while :; do
  notified=
  wait "$child"
  code=$?
  # A signal ends the wait and not the script.
  [ -n "$notified" ] || break
done
printf '%s\n' "$code" > "$stem.exit"
exit "$code"
