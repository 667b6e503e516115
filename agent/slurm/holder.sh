# Holds the devices of a booking; its owner works in the job by `srun --jobid`.

while :; do
  sleep 86400 &
  wait $!
  kill $! 2>/dev/null
done
