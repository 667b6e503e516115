"""The texts of checks of `doctor`: agents print them in English, the portal translates them.

This module needs no Django, so that agents have it, too. `gettext_noop` marks the texts for
translators.
"""


def gettext_noop(text: str) -> str:
    """Returns the text. Programs that collect texts for translators find it by this name."""
    return text


CHECK_TEXTS = {
    "fix_driver_unknown": gettext_noop("check which driver this is"),
    "fix_kubernetes_gpus": gettext_noop(
        "install NVIDIA's device plugin, with the strategy mixed for MIG, so that nodes offer "
        "nvidia.com/gpu or nvidia.com/mig-…"
    ),
    "fix_kubernetes_kueue": gettext_noop(
        "install Kueue, with v1beta1 of its API served, or the Helm chart with kueue=false"
    ),
    "fix_kubernetes_namespaces": gettext_noop(
        "label one namespace for each organisation (%(tenant)s=SLUG), or project (%(project)s=SLUG, too)"
    ),
    "fix_kubernetes_nodes": gettext_noop(
        "kubectl label node NODE %(label)s=, and see that it is ready and not cordoned"
    ),
    "fix_kubernetes_products": gettext_noop(
        "install GPU feature discovery, or name the products by --gpu-models: %(missing)s"
    ),
    "fix_kubernetes_rights": gettext_noop(
        "bind the ClusterRole of the Helm chart to the engine's service account"
    ),
    "fix_kubernetes_silent": gettext_noop(
        "run the engine as a pod, or give --kubernetes-api, --kubernetes-token and --kubernetes-ca"
    ),
    "fix_persistence_unknown": gettext_noop("see nvidia-smi -q -d PERFORMANCE"),
    "account": gettext_noop("account number %(uid)s"),
    "amd_hidden": gettext_noop("the open files of some programs can't be read"),
    "amd_memory": gettext_noop("memory in %(kinds)s"),
    "amd_partitions": gettext_noop("GPUs stand in %(modes)s; this node offers %(wanted)s"),
    "binding": gettext_noop("nvidia-ml-py %(version)s"),
    "binding_missing": gettext_noop("nvidia-ml-py is not installed"),
    "capabilities": gettext_noop("capability files in /dev/nvidia-caps: %(made)s"),
    "cgroup": gettext_noop("with cpuset and memory"),
    "cgroup_without": gettext_noop("without %(missing)s"),
    "clock_free": gettext_noop("not set by NTP"),
    "clock_ntp": gettext_noop("set by NTP"),
    "domains": gettext_noop("groups of linked GPUs: %(domains)s"),
    "driver_error": gettext_noop("%(error)s"),
    "driver_version": gettext_noop("version %(text)s"),
    "cores": gettext_noop("cores %(cores)s are there"),
    "cores_memory": gettext_noop("%(mb)s MiB of the host's %(whole)s"),
    "cores_missing": gettext_noop("this host has no cores %(cores)s"),
    "cores_unknown": gettext_noop("the kernel does not list the cores of this host"),
    "fix_cores": gettext_noop("see agent.md, “Work without a GPU”"),
    "each": gettext_noop("%(gpus)s"),
    "enrolled": gettext_noop("enrolled as %(node)s"),
    "device_list": gettext_noop("devices of the list: %(devices)s"),
    "device_list_hidden": gettext_noop("the open files of %(count)s programs can't be read"),
    "device_list_unread": gettext_noop("the list of devices could not be read"),
    "device_list_wrong": gettext_noop("%(error)s"),
    "error": gettext_noop("%(name)s: %(error)s"),
    "errors": gettext_noop("%(errors)s"),
    "errors_none": gettext_noop("none now"),
    "files": gettext_noop("device files: %(paths)s; everybody may open %(open)s"),
    "files_missing": gettext_noop("missing: %(paths)s"),
    "fix_account": gettext_noop("run doctor as root, as the agent runs"),
    "fix_amd": gettext_noop(
        "load the module amdgpu, and install amd-smi-lib and its Python library, of one ROCm from 6.4 on"
    ),
    "fix_amd_files_open": gettext_noop(
        "set the group and the mode 0660 of /dev/dri/renderD* by a rule of udev, with no person in the group"
    ),
    "fix_amd_memory": gettext_noop(
        "set NPS1: in other memory partitions GPUs may not change between whole and partitions"
    ),
    "fix_amd_partitions": gettext_noop("run the agent with --amd and a partition that all GPUs here have"),
    "fix_amd_readings": gettext_noop("see amd-smi metric; what is missing is shown as not measured"),
    "fix_binding": gettext_noop("install nvidia-ml-py %(binding)s: the agent was written for its constants"),
    "fix_binding_missing": gettext_noop("install %(binding)s"),
    "fix_by_hand": gettext_noop("run gpu-agent doctor on the node"),
    "fix_capabilities": gettext_noop("nothing: nvidia-modprobe creates them with the first slice"),
    "fix_cgroup": gettext_noop(
        "enable these controllers: without them, host cores and memory are counted and not enforced"
    ),
    "fix_checkpoint": gettext_noop("install it: without it, pauses by suspend stop the programs instead"),
    "fix_clock": gettext_noop("start chrony: bookings start and end by this clock"),
    "fix_clock_unknown": gettext_noop("check that NTP sets the clock"),
    "fix_ctk": gettext_noop(
        "install it (nvidia-container-toolkit): containers get the driver's libraries from it"
    ),
    "fix_driver_error": gettext_noop("see the kernel's log, and report the output of doctor --json"),
    "fix_driver_errors": gettext_noop("see agent.md, “Driver errors”"),
    "fix_device_list": gettext_noop("see agent.md, “Devices that are no GPUs”"),
    "fix_device_list_files": gettext_noop("load the driver that makes these files, or correct the list"),
    "fix_driver_hangs": gettext_noop(
        "see the kernel's log for Xids, then restart the node: no work is possible while the driver hangs"
    ),
    "fix_driver_old": gettext_noop("install driver %(oldest)s or later"),
    "fix_enrol": gettext_noop("start the agent once with --portal and --token"),
    "fix_fabric": gettext_noop("start the nvidia-fabricmanager of the driver's version"),
    "fix_files": gettext_noop(
        "run nvidia-modprobe -u -c 0 for the first GPU, -c 1 for the second, and so on"
    ),
    "fix_files_open": gettext_noop(
        "see agent.md, “Device permissions”: everybody may use these GPUs without a booking"
    ),
    "fix_folder": gettext_noop(
        "chmod 0755: people read files of their bookings in it, and only the agent may write"
    ),
    "fix_folder_missing": gettext_noop("create it, or start the agent as root: it creates the folder"),
    "fix_folder_read_only": gettext_noop("let the agent's account write to it"),
    "fix_free": gettext_noop("free some space: without it, the agent can't store keys and its state"),
    "fix_gpu_services": gettext_noop(
        "stop them in hooks `release`, or MIG modes can't change: see agent.md, “When a mode changes”"
    ),
    "fix_gpus_missing": gettext_noop("see the kernel's log: GPUs that the driver counts: %(count)s"),
    "fix_holders": gettext_noop(
        "end these programs, or book the GPUs for them: the agent hands over only GPUs without programs"
    ),
    "fix_identity": gettext_noop("run doctor as root"),
    "fix_install_driver": gettext_noop("install NVIDIA's driver, 535 or later, and load it"),
    "fix_mode": gettext_noop("end the programs that have the GPU open, then reset it"),
    "fix_mode_of_files": gettext_noop("see agent.md, “Device permissions”: everybody may open every GPU"),
    "fix_modify": gettext_noop(
        "remove NVreg_ModifyDeviceFiles=0: without capability files there are no slices"
    ),
    "fix_modprobe": gettext_noop("install it: it creates missing device files"),
    "fix_module": gettext_noop("run modprobe nvidia, if this machine has an NVIDIA GPU"),
    "fix_modules": gettext_noop("see nvidia-smi -L and lspci"),
    "fix_mps": gettext_noop("install it: without MPS, programs can use more of a GPU than their share"),
    "fix_network": gettext_noop(
        "start the agent with --interface NAME: programs on several nodes need it to find each other"
    ),
    "fix_no_capabilities": gettext_noop("nothing: without MIG none are needed"),
    "fix_no_cgroup": gettext_noop("boot with systemd.unified_cgroup_hierarchy=1"),
    "fix_no_portal": gettext_noop("add --portal https://..."),
    "fix_numa": gettext_noop(
        "nothing on a machine with one NUMA node; on others, the agent can't choose host cores near a GPU"
    ),
    "fix_openers": gettext_noop("end programs without a booking before the portal uses the node"),
    "fix_openers_hidden": gettext_noop("run doctor as root with CAP_SYS_PTRACE"),
    "fix_own_name": gettext_noop(
        "nothing for NCCL, Gloo and torchrun under gpu-agent run; for others, give the name "
        "the node's own address"
    ),
    "fix_owners": gettext_noop(
        "drain and remove it: see guides/nodes.md, “With Slurm or Kubernetes”; until then, no "
        "unbooked process is ended"
    ),
    "fix_persistence": gettext_noop("start nvidia-persistenced"),
    "fix_persistenced": gettext_noop(
        "install it: without persistence mode, each first answer of the driver takes seconds"
    ),
    "fix_pids": gettext_noop(
        "run the agent outside of containers, or with --pid=host: the driver reports process ids of the host"
    ),
    "fix_portal": gettext_noop(
        "allow connections from this node to the portal: check firewalls and name service"
    ),
    "fix_profiles": gettext_noop(
        "enable MIG on one GPU once and run this again: this driver reports profiles only then"
    ),
    "fix_ptrace": gettext_noop(
        "grant CAP_SYS_PTRACE: without it, the agent does not see programs that hold a GPU "
        "without a CUDA context"
    ),
    "fix_readings": gettext_noop("nothing: pages have gaps in these charts"),
    "fix_reset_or_drain": gettext_noop("reset the GPU, or drain it"),
    "fix_residue": gettext_noop("reset the GPU: memory that no program has stays in use"),
    "fix_setfacl": gettext_noop("install it (package acl): --device-permissions acl needs it"),
    "fix_simulate": gettext_noop("nothing, unless this node has a GPU"),
    "fix_slow": gettext_noop(
        "turn persistence mode on: the agent takes a driver that needs more than 2 s for one that hangs"
    ),
    "fix_slurm_accounts": gettext_noop(
        "give each member an association, or let the engine charge one account by --slurm-account"
    ),
    "fix_slurm_cgroups": gettext_noop(
        "set TaskPlugin=task/affinity,task/cgroup, ProctrackType=proctrack/cgroup and, in cgroup.conf, "
        "ConstrainDevices=yes: without them a job can open the GPUs of others"
    ),
    "fix_slurm_gres": gettext_noop("name the node's GPUs in slurm.conf (Gres=gpu:TYPE:N) and gres.conf"),
    "fix_slurm_kill_wait": gettext_noop(
        "set KillWait to 30 or less: a booking that follows waits for programs that ignore TERM"
    ),
    "fix_slurm_memory": gettext_noop(
        "set DefMemPerGPU: a booking that asks for no memory would get all of its node's"
    ),
    "fix_slurm_old": gettext_noop("install Slurm 22.05 or later"),
    "fix_slurm_preempts": gettext_noop(
        "use a partition whose jobs nobody preempts (--partition): the portal alone decides who is paused"
    ),
    "fix_slurm_reservation": gettext_noop(
        "scontrol create reservation ReservationName=%(name)s StartTime=now Duration=UNLIMITED "
        "Nodes=NODES Users=MEMBERS (or Accounts=ACCOUNTS) Flags=IGNORE_JOBS"
    ),
    "fix_slurm_reservation_nodes": gettext_noop("scontrol update ReservationName=%(name)s Nodes+=%(nodes)s"),
    "fix_slurm_select": gettext_noop("set SelectType=select/cons_tres and GresTypes=gpu"),
    "fix_slurm_silent": gettext_noop(
        "install Slurm's commands, set SLURM_CONF, and see that munge and slurmctld run with the same key"
    ),
    "fix_suspend": gettext_noop(
        "for pauses by suspend, install driver %(suspends)s or later; all else works"
    ),
    "fix_systemd": gettext_noop("restart the agent by other means when it ends: leases need a running agent"),
    "fix_versions": gettext_noop(
        "restart the node if its driver library and kernel module have different versions"
    ),
    "fix_wrong_pids": gettext_noop(
        "update the driver: 535.43 to 535.98 report wrong process ids, so the agent uses open files only"
    ),
    "folder": gettext_noop("%(state)s, mode %(mode)s"),
    "folder_missing": gettext_noop("%(state)s does not exist"),
    "folder_read_only": gettext_noop("%(state)s, mode %(mode)s, is not writable"),
    "free": gettext_noop("%(mib)s MiB free"),
    "gpus": gettext_noop("%(gpus)s"),
    "gpus_reported": gettext_noop("GPUs that reported their state: %(truths)s"),
    "gpus_without_driver": gettext_noop("%(why)s, and there are GPUs at %(gpus)s"),
    "hangs": gettext_noop("%(asks)s does not answer, in the check “%(check)s”"),
    "identity_unreadable": gettext_noop("identity.json is not readable"),
    "init": gettext_noop("process 1 is %(name)s"),
    "kubernetes_answers": gettext_noop("Kubernetes %(version)s"),
    "kubernetes_gpus": gettext_noop("%(gpus)s"),
    "kubernetes_kueue": gettext_noop("%(api)s is served"),
    "kubernetes_kueue_none": gettext_noop("%(api)s is not served"),
    "kubernetes_namespaces": gettext_noop("%(namespaces)s"),
    "kubernetes_namespaces_twice": gettext_noop("several namespaces are labelled for %(projects)s"),
    "kubernetes_nodes": gettext_noop("%(nodes)s; not ready or closed: %(closed)s"),
    "kubernetes_nodes_missing": gettext_noop("not found: %(nodes)s"),
    "kubernetes_plain": gettext_noop("bookings are quotas, and pods hold their devices"),
    "kubernetes_plain_missing": gettext_noop("bookings can't be quotas without %(missing)s"),
    "kubernetes_products": gettext_noop("%(products)s"),
    "kubernetes_rights": gettext_noop("all are granted"),
    "kubernetes_rights_missing": gettext_noop("not granted: %(missing)s"),
    "kubernetes_silent": gettext_noop("%(error)s"),
    "modes": gettext_noop("%(modes)s"),
    "modes_none": gettext_noop("no GPU reported its mode"),
    "module": gettext_noop("%(version)s"),
    "module_missing": gettext_noop("the NVIDIA kernel module is not loaded"),
    "network": gettext_noop("%(interface)s, %(address)s"),
    "no_answer": gettext_noop("no answer within %(limit)s s"),
    "no_capabilities": gettext_noop("the driver has no capability files"),
    "no_cgroup": gettext_noop("cgroup v2 is not mounted"),
    "no_driver": gettext_noop("no driver answers"),
    "no_gpu": gettext_noop("the driver reports no GPU"),
    "no_gpu_state": gettext_noop("no GPU reported its state"),
    "no_holders": gettext_noop("no GPU has a program"),
    "no_network": gettext_noop("no interface with an IPv4 address and a default route"),
    "no_nvidia_gpu": gettext_noop("this machine has no NVIDIA GPU (%(why)s)"),
    "no_openers": gettext_noop("nobody has a device file open"),
    "no_openers_hidden": gettext_noop(
        "nobody is seen to have a device file open; programs whose files can't be read: %(hidden)s"
    ),
    "no_parameters": gettext_noop("the driver reports no parameters"),
    "no_portal": gettext_noop("no address was given"),
    "no_ptrace": gettext_noop("CAP_SYS_PTRACE is missing"),
    "no_timedatectl": gettext_noop("timedatectl is not installed"),
    "none_runs": gettext_noop("none is running"),
    "not_enrolled": gettext_noop("not enrolled"),
    "not_opened": gettext_noop("the driver was not opened"),
    "not_reported": gettext_noop("the driver does not report it"),
    "numa": gettext_noop("%(nodes)s"),
    "nvml_answers": gettext_noop("NVML answers"),
    "openers": gettext_noop("%(openers)s"),
    "openers_hidden": gettext_noop("%(openers)s; programs whose files can't be read: %(hidden)s"),
    "out_of_time": gettext_noop("not checked: the %(within)s s for all checks are over"),
    "own_name": gettext_noop("%(name)s resolves to %(address)s on this node"),
    "owners": gettext_noop("%(names)s"),
    "parameters": gettext_noop("DeviceFileMode %(mode)s, ModifyDeviceFiles %(modify)s"),
    "persistence_on": gettext_noop("GPUs with it on: %(on)s of %(modes)s"),
    "pids_believed": gettext_noop("the driver reports the right process ids"),
    "pids_of_container": gettext_noop("a container's, %(name)s"),
    "pids_of_host": gettext_noop("the host's"),
    "portal_answers": gettext_noop("%(hostname)s:%(port)s answers"),
    "portal_silent": gettext_noop("%(hostname)s:%(port)s: %(error)s"),
    "program": gettext_noop("%(path)s"),
    "program_missing": gettext_noop("not installed"),
    "ptrace": gettext_noop("CAP_SYS_PTRACE is granted"),
    "readings": gettext_noop("all are reported"),
    "readings_missing": gettext_noop("not reported: %(names)s"),
    "residue_none": gettext_noop("no GPU has any"),
    "storage": gettext_noop("local NVMe: %(local)s GB; shared file systems: %(shared)s"),
    "storage_unknown": gettext_noop("the mounts can't be read"),
    "simulated": gettext_noop("simulated, branch %(branch)s: no real GPU was checked"),
    "simulated_files": gettext_noop("simulated GPUs have no device files"),
    "sliceable": gettext_noop("GPUs that can be sliced: %(able)s of %(gpus)s"),
    "slowest": gettext_noop("the slowest answer took %(ms)s ms"),
    "slurm_accounts": gettext_noop("AccountingStorageEnforce is %(enforce)s"),
    "slurm_answers": gettext_noop("%(version)s, cluster %(cluster)s"),
    "slurm_cgroups": gettext_noop("TaskPlugin %(task)s, ConstrainDevices %(devices)s"),
    "slurm_gres": gettext_noop("%(gpus)s"),
    "slurm_kill_wait": gettext_noop("KillWait is %(seconds)s s"),
    "slurm_memory": gettext_noop("SelectTypeParameters %(select)s, memory for each job %(memory)s"),
    "slurm_preempts": gettext_noop("PreemptMode is %(mode)s"),
    "slurm_reservation": gettext_noop("%(name)s holds %(nodes)s for %(who)s"),
    "slurm_reservation_none": gettext_noop("there is no active reservation %(name)s"),
    "slurm_reservation_without": gettext_noop("%(name)s does not hold %(nodes)s"),
    "slurm_select": gettext_noop("SelectType is %(select)s"),
    "slurm_silent": gettext_noop("%(error)s"),
    "timedatectl_error": gettext_noop("%(text)s"),
    "timedatectl_silent": gettext_noop("timedatectl gave no answer"),
    "unread": gettext_noop("the result can't be read: %(name)s: %(error)s"),
    "wrong_pids": gettext_noop("driver %(text)s reports wrong process ids"),
}
