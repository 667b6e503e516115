# The notice of a pause comes as a signal, which goes on to the job's programs that have a handler for it: it
# would end others.

notice() {
  notified=1
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [ "$pid" = "$$" ] && continue
    grep -qz "^SLURM_JOB_ID=$SLURM_JOB_ID$" "$folder/environ" 2>/dev/null || continue
    mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "$folder/status" 2>/dev/null)
    [ -n "$mask" ] && (( 0x$mask >> ($1 - 1) & 1 )) && kill -"$1" "$pid" 2>/dev/null
  done
}

[ -n "$NOTICE" ] && trap 'notice "$NOTICE"' "$NOTICE"
