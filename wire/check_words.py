"""The texts of checks of `doctor`, for agents and the portal: they need no Django."""

CHECK_TEXTS = {
    "fix_driver_unknown": "check which driver this is",
    "fix_kubernetes_gpus": (
        "install NVIDIA's device plugin, with the strategy mixed for MIG, so that nodes offer "
        "nvidia.com/gpu or nvidia.com/mig-…"
    ),
    (
        "fix_kubernetes_kueue"
    ): "install Kueue, with v1beta1 of its API served, or the Helm chart with kueue=false",
    (
        "fix_kubernetes_namespaces"
    ): "label one namespace for each organisation (%(tenant)s=SLUG), or project (%(project)s=SLUG, too)",
    "fix_kubernetes_nodes": "kubectl label node NODE %(label)s=, and see that it is ready and not cordoned",
    (
        "fix_kubernetes_products"
    ): "install GPU feature discovery, or name the products by --gpu-models: %(missing)s",
    "fix_kubernetes_rights": "bind the ClusterRole of the Helm chart to the engine's service account",
    (
        "fix_kubernetes_silent"
    ): "run the engine as a pod, or give --kubernetes-api, --kubernetes-token and --kubernetes-ca",
    ("fix_kubernetes_volcano"): "install Volcano, and the Helm chart with kueue=false and volcano=true",
    "fix_kubernetes_volcano_lacks": (
        "add them to its scheduler's settings: without gang, pods of a group begin one by one; "
        "without the others, work begins in closed queues"
    ),
    "fix_kubernetes_volcano_outside": (
        "kubectl label node NODE %(label)s=NODE: the plugin lets no pod on a node without a group, "
        "unless strict is false"
    ),
    "fix_kubernetes_volcano_shared": "kubectl taint node NODE %(taint)s=:NoSchedule",
    "fix_kubernetes_volcano_unread": (
        "see that its plugins are gang, and capacity or proportion; the Helm chart grants to read them "
        "where volcanoNamespace names its namespace"
    ),
    "fix_persistence_unknown": "see nvidia-smi -q -d PERFORMANCE",
    "account": "account number %(uid)s",
    "amd_hidden": "the open files of some programs can't be read",
    "amd_memory": "memory in %(kinds)s",
    "amd_partitions": "GPUs stand in %(modes)s; this node offers %(wanted)s",
    "binding": "nvidia-ml-py %(version)s",
    "binding_missing": "nvidia-ml-py is not installed",
    "capabilities": "capability files in /dev/nvidia-caps: %(made)s",
    "cgroup": "with cpuset and memory",
    "cgroup_without": "without %(missing)s",
    "clock_free": "not set by NTP",
    "clock_ntp": "set by NTP",
    "domains": "groups of linked GPUs: %(domains)s",
    "driver_error": "%(error)s",
    "driver_version": "version %(text)s",
    "cores": "cores %(cores)s are there",
    "cores_memory": "%(mb)s MiB of the host's %(whole)s",
    "cores_missing": "this host has no cores %(cores)s",
    "cores_unknown": "the kernel does not list the cores of this host",
    "fix_cores": "see agent.md, “Work without a GPU”",
    "each": "%(gpus)s",
    "enrolled": "enrolled as %(node)s",
    "device_list": "devices of the list: %(devices)s",
    "device_list_hidden": "the open files of %(count)s programs can't be read",
    "device_list_unread": "the list of devices could not be read",
    "device_list_wrong": "%(error)s",
    "error": "%(name)s: %(error)s",
    "errors": "%(errors)s",
    "errors_none": "none now",
    "files": "device files: %(paths)s; everybody may open %(open)s",
    "files_missing": "missing: %(paths)s",
    "fix_account": "run doctor as root, as the agent runs",
    (
        "fix_amd"
    ): "load the module amdgpu, and install amd-smi-lib and its Python library, of one ROCm from 6.4 on",
    (
        "fix_amd_files_open"
    ): "set the group and the mode 0660 of /dev/dri/renderD* by a rule of udev, with no person in the group",
    "fix_amd_memory": "set NPS1: in other memory partitions GPUs may not change between whole and partitions",
    "fix_amd_partitions": "run the agent with --amd and a partition that all GPUs here have",
    "fix_amd_readings": "see amd-smi metric; what is missing is shown as not measured",
    "fix_binding": "install nvidia-ml-py %(binding)s: the agent was written for its constants",
    "fix_binding_missing": "install %(binding)s",
    "fix_by_hand": "run gpu-agent doctor on the node",
    "fix_capabilities": "nothing: nvidia-modprobe creates them with the first slice",
    (
        "fix_cgroup"
    ): "enable these controllers: without them, host cores and memory are counted and not enforced",
    "fix_checkpoint": "install it: without it, pauses by suspend stop the programs instead",
    "fix_clock": "start chrony: bookings start and end by this clock",
    "fix_clock_unknown": "check that NTP sets the clock",
    "fix_ctk": "install it (nvidia-container-toolkit): containers get the driver's libraries from it",
    "fix_driver_error": "see the kernel's log, and report the output of doctor --json",
    "fix_driver_errors": "see agent.md, “Driver errors”",
    "fix_device_list": "see agent.md, “Devices that are no GPUs”",
    "fix_device_list_files": "load the driver that makes these files, or correct the list",
    (
        "fix_driver_hangs"
    ): "see the kernel's log for Xids, then restart the node: no work is possible while the driver hangs",
    "fix_driver_old": "install driver %(oldest)s or later",
    (
        "fix_enrol"
    ): "start the agent once with --portal and --token; with --engine enrol it: gpu-agent --engine … enroll",
    "fix_fabric": "start the nvidia-fabricmanager of the driver's version",
    "fix_files": "run nvidia-modprobe -u -c 0 for the first GPU, -c 1 for the second, and so on",
    "fix_files_open": "see agent.md, “Device permissions”: everybody may use these GPUs without a booking",
    "fix_folder": "chmod 0755: people read files of their bookings in it, and only the agent may write",
    "fix_folder_missing": "create it, or start the agent as root: it creates the folder",
    "fix_folder_read_only": "let the agent's account write to it",
    "fix_free": "free some space: without it, the agent can't store keys and its state",
    (
        "fix_gpu_services"
    ): "stop them in hooks `release`, or MIG modes can't change: see agent.md, “When a mode changes”",
    "fix_gpus_missing": "see the kernel's log: GPUs that the driver counts: %(count)s",
    (
        "fix_holders"
    ): "end these programs, or book the GPUs for them: the agent hands over only GPUs without programs",
    "fix_identity": "run doctor as root",
    "fix_install_driver": "install NVIDIA's driver, 535 or later, and load it",
    "fix_mode": "end the programs that have the GPU open, then reset it",
    "fix_mode_of_files": "see agent.md, “Device permissions”: everybody may open every GPU",
    "fix_modify": "remove NVreg_ModifyDeviceFiles=0: without capability files there are no slices",
    "fix_modprobe": "install it: it creates missing device files",
    "fix_module": "run modprobe nvidia, if this machine has an NVIDIA GPU",
    "fix_modules": "see nvidia-smi -L and lspci",
    "fix_mps": "install it: without MPS, programs can use more of a GPU than their share",
    (
        "fix_network"
    ): "start the agent with --interface NAME: programs on several nodes need it to find each other",
    "fix_no_capabilities": "nothing: without MIG none are needed",
    "fix_no_cgroup": "boot with systemd.unified_cgroup_hierarchy=1",
    "fix_no_portal": "add --portal https://...",
    (
        "fix_numa"
    ): "nothing on a machine with one NUMA node; on others, the agent can't choose host cores near a GPU",
    "fix_openers": "end programs without a booking before the portal uses the node",
    "fix_openers_hidden": "run doctor as root with CAP_SYS_PTRACE",
    "fix_own_name": (
        "nothing for NCCL, Gloo and torchrun under gpu-agent run; for others, give the name "
        "the node's own address"
    ),
    "fix_owners": (
        "drain and remove it: see guides/nodes.md, “With Slurm or Kubernetes”; until then, no "
        "unbooked process is ended"
    ),
    "fix_persistence": "start nvidia-persistenced",
    "fix_persistenced": "install it: without persistence mode, each first answer of the driver takes seconds",
    (
        "fix_pids"
    ): "run the agent outside of containers, or with --pid=host: the driver reports process ids of the host",
    "fix_portal": "allow connections from this node to the portal: check firewalls and name service",
    "fix_profiles": "enable MIG on one GPU once and run this again: this driver reports profiles only then",
    "fix_ptrace": (
        "grant CAP_SYS_PTRACE: without it, the agent does not see programs that hold a GPU "
        "without a CUDA context"
    ),
    "fix_readings": "nothing: pages have gaps in these charts",
    "fix_reset_or_drain": "reset the GPU, or drain it",
    "fix_residue": "reset the GPU: memory that no program has stays in use",
    "fix_setfacl": "install it (package acl): --device-permissions acl needs it",
    "fix_simulate": "nothing, unless this node has a GPU",
    (
        "fix_slow"
    ): "turn persistence mode on: the agent takes a driver that needs more than 2 s for one that hangs",
    (
        "fix_slurm_accounts"
    ): "name accounts by --slurm-account, and associate members: sacctmgr add user USER account=ACCOUNT",
    "fix_slurm_cgroups": (
        "set TaskPlugin=task/affinity,task/cgroup, ProctrackType=proctrack/cgroup and, in cgroup.conf, "
        "ConstrainDevices=yes: without them a job can open the GPUs of others"
    ),
    "fix_slurm_gres": "name the node's GPUs in slurm.conf (Gres=gpu:TYPE:N) and gres.conf",
    (
        "fix_slurm_kill_wait"
    ): "set KillWait to 30 or less: a booking that follows waits for programs that ignore TERM",
    "fix_slurm_memory": "set DefMemPerGPU: a booking that asks for no memory would get all of its node's",
    "fix_slurm_no_config": "run gpu-agent doctor --engine slurm on a host that has Slurm's commands",
    "fix_slurm_old": "install Slurm 22.05 or later",
    (
        "fix_slurm_preempts"
    ): "use a partition whose jobs nobody preempts (--partition): the portal alone decides who is paused",
    "fix_slurm_reservation": (
        "scontrol create reservation ReservationName=%(name)s StartTime=now Duration=UNLIMITED "
        "Nodes=NODES Users=MEMBERS (or Accounts=ACCOUNTS) Flags=IGNORE_JOBS"
    ),
    "fix_slurm_reservation_nodes": "scontrol update ReservationName=%(name)s Nodes+=%(nodes)s",
    "fix_slurm_select": "set SelectType=select/cons_tres and GresTypes=gpu",
    (
        "fix_slurm_silent"
    ): "install Slurm's commands, set SLURM_CONF, and see that munge and slurmctld run with the same key",
    (
        "fix_slurm_token"
    ): "write a new one before it ends: scontrol token username=root lifespan=SECONDS, as by a timer",
    "fix_suspend": "for pauses by suspend, install driver %(suspends)s or later; all else works",
    "fix_systemd": "restart the agent by other means when it ends: leases need a running agent",
    "fix_versions": "restart the node if its driver library and kernel module have different versions",
    (
        "fix_wrong_pids"
    ): "update the driver: 535.43 to 535.98 report wrong process ids, so the agent uses open files only",
    "folder": "%(state)s, mode %(mode)s",
    "folder_missing": "%(state)s does not exist",
    "folder_read_only": "%(state)s, mode %(mode)s, is not writable",
    "free": "%(mib)s MiB free",
    "gpus": "%(gpus)s",
    "gpus_reported": "GPUs that reported their state: %(truths)s",
    "gpus_without_driver": "%(why)s, and there are GPUs at %(gpus)s",
    "hangs": "%(asks)s does not answer, in the check “%(check)s”",
    "identity_unreadable": "identity.json is not readable",
    "init": "process 1 is %(name)s",
    "kubernetes_answers": "Kubernetes %(version)s",
    "kubernetes_gpus": "%(gpus)s",
    "kubernetes_kueue": "%(api)s is served",
    "kubernetes_kueue_none": "%(api)s is not served",
    "kubernetes_namespaces": "%(namespaces)s",
    "kubernetes_namespaces_twice": "several namespaces are labelled for %(projects)s",
    "kubernetes_nodes": "%(nodes)s; not ready or closed: %(closed)s",
    "kubernetes_nodes_missing": "not found: %(nodes)s",
    "kubernetes_plain": "bookings are quotas, and pods hold their devices",
    "kubernetes_plain_missing": "bookings can't be quotas without %(missing)s",
    "kubernetes_products": "%(products)s",
    "kubernetes_rights": "all are granted",
    "kubernetes_rights_missing": "not granted: %(missing)s",
    "kubernetes_silent": "%(error)s",
    "kubernetes_volcano": "%(api)s is served, and the chart's policies are there",
    "kubernetes_volcano_lacks": "%(config)s has no plugin %(plugins)s",
    "kubernetes_volcano_missing": "bookings can't have queues of Volcano without %(missing)s",
    "kubernetes_volcano_none": "%(api)s is not served",
    "kubernetes_volcano_off": "not used",
    ("kubernetes_volcano_outside"): "it has the plugin nodegroup, and these nodes are in no group: %(nodes)s",
    "kubernetes_volcano_plugins": "%(plugins)s",
    "kubernetes_volcano_queues": "not used: bookings are quotas with queues of Volcano",
    "kubernetes_volcano_shared": "pods of others may come to %(nodes)s",
    "kubernetes_volcano_unread": "%(config)s: %(error)s",
    "kubernetes_volcano_unused": "%(api)s is served, and not used",
    "modes": "%(modes)s",
    "modes_none": "no GPU reported its mode",
    "module": "%(version)s",
    "module_missing": "the NVIDIA kernel module is not loaded",
    "network": "%(interface)s, %(address)s",
    "no_answer": "no answer within %(limit)s s",
    "no_capabilities": "the driver has no capability files",
    "no_cgroup": "cgroup v2 is not mounted",
    "no_driver": "no driver answers",
    "no_gpu": "the driver reports no GPU",
    "no_gpu_state": "no GPU reported its state",
    "no_holders": "no GPU has a program",
    "no_network": "no interface with an IPv4 address and a default route",
    "no_nvidia_gpu": "this machine has no NVIDIA GPU (%(why)s)",
    "no_openers": "nobody has a device file open",
    (
        "no_openers_hidden"
    ): "nobody is seen to have a device file open; programs whose files can't be read: %(hidden)s",
    "no_parameters": "the driver reports no parameters",
    "no_portal": "no address was given",
    "no_ptrace": "CAP_SYS_PTRACE is missing",
    "no_timedatectl": "timedatectl is not installed",
    "none_runs": "none is running",
    "not_enrolled": "not enrolled",
    "not_opened": "the driver was not opened",
    "not_reported": "the driver does not report it",
    "numa": "%(nodes)s",
    "nvml_answers": "NVML answers",
    "openers": "%(openers)s",
    "openers_hidden": "%(openers)s; programs whose files can't be read: %(hidden)s",
    "out_of_time": "not checked: the %(within)s s for all checks are over",
    "own_name": "%(name)s resolves to %(address)s on this node",
    "owners": "%(names)s",
    "parameters": "DeviceFileMode %(mode)s, ModifyDeviceFiles %(modify)s",
    "persistence_on": "GPUs with it on: %(on)s of %(modes)s",
    "pids_believed": "the driver reports the right process ids",
    "pids_of_container": "a container's, %(name)s",
    "pids_of_host": "the host's",
    "portal_answers": "%(hostname)s:%(port)s answers",
    "portal_silent": "%(hostname)s:%(port)s: %(error)s",
    "program": "%(path)s",
    "program_missing": "not installed",
    "ptrace": "CAP_SYS_PTRACE is granted",
    "readings": "all are reported",
    "readings_missing": "not reported: %(names)s",
    "residue_none": "no GPU has any",
    "storage": "local NVMe: %(local)s GB; shared file systems: %(shared)s",
    "storage_unknown": "the mounts can't be read",
    "simulated": "simulated, branch %(branch)s: no real GPU was checked",
    "simulated_files": "simulated GPUs have no device files",
    "sliceable": "GPUs that can be sliced: %(able)s of %(gpus)s",
    "slowest": "the slowest answer took %(ms)s ms",
    "slurm_accounts": "AccountingStorageEnforce is %(enforce)s",
    "slurm_accounts_lacking": "AccountingStorageEnforce is %(enforce)s; accounts without users: %(accounts)s",
    "slurm_answers": "%(version)s, cluster %(cluster)s",
    "slurm_cgroups": "TaskPlugin %(task)s, ConstrainDevices %(devices)s",
    "slurm_gres": "%(gpus)s",
    "slurm_kill_wait": "KillWait is %(seconds)s s",
    "slurm_memory": "SelectTypeParameters %(select)s, memory for each job %(memory)s",
    "slurm_no_config": "slurmrestd does not say it",
    "slurm_preempts": "PreemptMode is %(mode)s",
    "slurm_reservation": "%(name)s holds %(nodes)s for %(who)s",
    "slurm_reservation_none": "there is no active reservation %(name)s",
    "slurm_reservation_without": "%(name)s does not hold %(nodes)s",
    "slurm_select": "SelectType is %(select)s",
    "slurm_silent": "%(error)s",
    "slurm_token": "of %(name)s, for %(hours)s h",
    "timedatectl_error": "%(text)s",
    "timedatectl_silent": "timedatectl gave no answer",
    "unread": "the result can't be read: %(name)s: %(error)s",
    "wrong_pids": "driver %(text)s reports wrong process ids",
}
