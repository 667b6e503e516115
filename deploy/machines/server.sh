#!/bin/sh
# Starts one server of a site of three machines, as systemd's units, the containers and the tests do:
#
#   server.sh etcd | patroni | valkey | valkey-agents | sentinel
#
# Machines 1 and 2 run all of them, machine 3 only etcd and sentinel: a majority of three decides who
# leads. docs/deployment.md, "Three machines", has the variables; machine.env lists them.
set -eu
umask 077

: "${MACHINE:?its number, 1 to 3}" "${MACHINE_1:?the address of machine 1}" "${MACHINE_2:?}" "${MACHINE_3:?}"
DATA=${DATA:-/var/lib/gpu-portal-servers}
FOLDER=$(cd "$(dirname "$0")" && pwd)
VALKEY_SERVER=${VALKEY_SERVER:-valkey-server}
eval "HERE=\$MACHINE_$MACHINE"

# Valkey takes settings as arguments; passwords would be seen in the list of processes, so it gets a
# file, in which Sentinel also notes who the primary is. The portal writes the accounts of nodes anew.
valkey() {
  name=$1 port=$2 password=$3
  shift 3
  file=$DATA/$name/valkey.conf
  mkdir -p "$DATA/$name"
  if ! test -f "$file"; then
    if test "$MACHINE" = 2; then echo "replicaof $MACHINE_1 $port"; fi > "$file"
  fi
  sed -i '/^user /d; /^masteruser /d; /^masterauth /d' "$file"
  cat >> "$file" <<END
user default off
user portal on >$password ~* &* +@all
masteruser portal
masterauth $password
END
  exec "$VALKEY_SERVER" "$file" --bind "$HERE" --port "$port" --dir "$DATA/$name" \
    --replica-announce-ip "$HERE" --protected-mode no --appendonly yes --save "" --maxmemory 512mb \
    --maxmemory-policy noeviction --repl-diskless-sync-delay 0 --repl-timeout 10 "$@"
}

case "$1" in
  etcd)
    exec etcd --name "machine-$MACHINE" --data-dir "$DATA/etcd" \
      --listen-client-urls "http://$HERE:2379" --advertise-client-urls "http://$HERE:2379" \
      --listen-peer-urls "http://$HERE:2380" --initial-advertise-peer-urls "http://$HERE:2380" \
      --initial-cluster-token gpu-portal --initial-cluster \
      "machine-1=http://$MACHINE_1:2380,machine-2=http://$MACHINE_2:2380,machine-3=http://$MACHINE_3:2380"
    ;;
  patroni)
    export PATRONI_NAME="machine-$MACHINE"
    export PATRONI_ETCD3_HOSTS="$MACHINE_1:2379,$MACHINE_2:2379,$MACHINE_3:2379"
    export PATRONI_RESTAPI_LISTEN="$HERE:8008" PATRONI_RESTAPI_CONNECT_ADDRESS="$HERE:8008"
    export PATRONI_RESTAPI_USERNAME=patroni PATRONI_RESTAPI_PASSWORD="${PATRONI_PASSWORD:?}"
    export PATRONI_POSTGRESQL_LISTEN="$HERE:5432" PATRONI_POSTGRESQL_CONNECT_ADDRESS="$HERE:5432"
    export PATRONI_POSTGRESQL_DATA_DIR="$DATA/postgres" PATRONI_POSTGRESQL_PGPASS="$DATA/pgpass"
    export PATRONI_SUPERUSER_USERNAME=postgres PATRONI_SUPERUSER_PASSWORD="${POSTGRES_PASSWORD:?}"
    export PATRONI_REPLICATION_USERNAME=replicator PATRONI_REPLICATION_PASSWORD="${REPLICATION_PASSWORD:?}"
    exec "${PATRONI:-/opt/gpu-portal/.venv-failover/bin/patroni}" "$FOLDER/patroni.yml"
    ;;
  valkey)
    valkey valkey 6379 "${VALKEY_PASSWORD:?}"
    ;;
  valkey-agents)
    valkey valkey-agents 6380 "${VALKEY_AGENTS_PASSWORD:?}" --maxmemory-clients 64mb \
      --proto-max-bulk-len 3mb --client-query-buffer-limit 4mb \
      --client-output-buffer-limit normal 64mb 32mb 10 \
      --client-output-buffer-limit pubsub 8mb 2mb 10 --timeout 120 --databases 1
    ;;
  sentinel)
    file=$DATA/sentinel/sentinel.conf
    mkdir -p "$DATA/sentinel"
    if ! test -f "$file"; then
      cat > "$file" <<END
bind $HERE
port 26379
dir $DATA/sentinel
sentinel announce-ip $HERE
user default off
user sentinel on >${SENTINEL_PASSWORD:?} ~* &* +@all
user portal on >${SENTINEL_PORTAL_PASSWORD:?} -@all +auth +hello +ping +client|setname +client|setinfo +sentinel|masters +sentinel|get-master-addr-by-name
sentinel sentinel-user sentinel
sentinel sentinel-pass $SENTINEL_PASSWORD
sentinel monitor portal $MACHINE_1 6379 2
sentinel auth-user portal portal
sentinel auth-pass portal ${VALKEY_PASSWORD:?}
sentinel down-after-milliseconds portal 3000
sentinel failover-timeout portal 6000
sentinel monitor agents $MACHINE_1 6380 2
sentinel auth-user agents portal
sentinel auth-pass agents ${VALKEY_AGENTS_PASSWORD:?}
sentinel down-after-milliseconds agents 3000
sentinel failover-timeout agents 6000
END
    fi
    exec "$VALKEY_SERVER" "$file" --sentinel
    ;;
  *)
    echo "usage: $0 etcd|patroni|valkey|valkey-agents|sentinel" >&2
    exit 2
    ;;
esac
