#!/bin/sh
# Stands for systemctl, systemd-run and busctl: keeps what set-property writes, and groups as folders.
# Its answers are those that systemd 252 gave. `refuse` beside it makes every change fail.
here=$(dirname "$0")
name=${0##*/}
tree=$here/cgroup/gpu.slice/gpu-booking.slice
printf '%s\n' "$name $*" >> "$here/calls"
case "$name $1" in
"systemctl --version") cat "$here/version"; exit 0 ;;
systemd-run*)
    case "$*" in *"DeviceAllow=/dev/kmsg r"*) exit 0 ;; esac
    [ -e "$here/unenforced" ]
    exit
    ;;
esac
if [ -e "$here/refuse" ]; then
    echo "Failed to set unit properties: Connection timed out" >&2
    exit 1
fi
case "$name $1" in
"systemctl set-property")
    drop=$here/control/$3.d
    mkdir -p "$drop"
    shift 3
    for each; do
        key=${each%%=*}
        [ "$each" != "$key=" ] && [ "$key" = DeviceAllow ] || printf '[Slice]\n' > "$drop/50-$key.conf"
        printf '%s\n' "$each" >> "$drop/50-$key.conf"
    done
    ;;
"systemctl start") mkdir -p "$tree/$2" && [ -e "$tree/$2/cgroup.events" ] || echo "populated 0" > "$tree/$2/cgroup.events" ;;
"systemctl show") [ ! -e "$here/traffic" ] || cat "$here/traffic" ;;
"systemctl stop") rm -rf "${tree:?}/$2" ;;
"systemctl revert") rm -rf "$here/control/$2.d" ;;
esac
