#include "tests/support/cases.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/config/device_names.h"
#include "agent/config/environment.h"
#include "agent/config/paths.h"
#include "state/base/files/access.h"
#include "tests/scratch.h"

static cl_device_type gpu = CL_DEVICE_TYPE_GPU, cpu = CL_DEVICE_TYPE_CPU;
static struct devinfo_value gpu_value = {CL_DEVICE_TYPE, sizeof(gpu), (uint8_t *)&gpu};
static struct devinfo_value cpu_value = {CL_DEVICE_TYPE, sizeof(cpu), (uint8_t *)&cpu};

static struct inventory_entry entry(bool is_gpu, const char *device, uint32_t ordinal,
                                    const char *uuid, const char *pci)
{
    struct inventory_entry made = {
        .info = {.value_count = 1, .values = is_gpu ? &gpu_value : &cpu_value}};

    strcpy(made.key.icd, "lib.so");
    strcpy(made.key.platform, "P");
    strcpy(made.key.device, device);
    strcpy(made.key.uuid, uuid);
    strcpy(made.key.pci, pci);
    made.key.ordinal = ordinal;
    return made;
}

Test(device_names, stay_when_hardware_comes_and_goes)
{
    char path[SCRATCH_MAX];
    struct inventory_entry first[] = {entry(false, "pthread", 0, "", ""),
                                      entry(true, "H200", 0, "aa11", "0000:01:00.0"),
                                      entry(true, "H200", 1, "bb22", "0000:02:00.0")};
    /* One GPU is gone, so that the other's ordinal shifts; a new one comes before it. */
    struct inventory_entry second[] = {entry(true, "A100", 0, "cc33", "0000:03:00.0"),
                                       entry(true, "H200", 0, "bb22", "0000:02:00.0"),
                                       entry(false, "basic", 0, "", ""),
                                       entry(false, "pthread", 0, "", "")};
    struct inventory inventory = {first, 3};
    struct device_names names;
    bool grew;

    close(mkstemp(scratch(path, "names")));
    cr_assert_eq(device_names_load(path, &names), 0);
    cr_assert_eq(device_names_assign(&names, &inventory, &grew), 0);
    cr_assert(grew);
    cr_assert_str_eq(first[0].name, "cpu0");
    cr_assert_str_eq(first[1].name, "gpu0");
    cr_assert_str_eq(first[2].name, "gpu1");
    cr_assert_eq(device_names_save(path, &names), 0);
    device_names_finish(&names);

    inventory = (struct inventory){second, 4};
    cr_assert_eq(device_names_load(path, &names), 0);
    cr_assert_eq(device_names_assign(&names, &inventory, &grew), 0);
    cr_assert(grew);
    cr_assert_str_eq(second[0].name, "gpu2");
    cr_assert_str_eq(second[1].name, "gpu1");
    cr_assert_str_eq(second[2].name, "cpu1");
    cr_assert_str_eq(second[3].name, "cpu0");

    inventory = (struct inventory){first, 3};
    cr_assert_eq(device_names_assign(&names, &inventory, &grew), 0);
    cr_assert(!grew);
    cr_assert_str_eq(first[1].name, "gpu0");
    device_names_finish(&names);
    unlink(path);
}

Test(device_names, a_damaged_file_gives_what_can_be_read)
{
    char path[SCRATCH_MAX];
    static const char text[] = "gpu0 icd=a;device=b\nGPU icd=a;device=c\ngpu1 nonsense\n\n"
                               "gpu0 icd=a;device=again\ncpu0 icd=a;device=d";
    struct device_names names;

    int fd = mkstemp(scratch(path, "names"));
    cr_assert_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
    close(fd);
    cr_assert_eq(device_names_load(path, &names), 0);
    cr_assert_eq(names.count, 2);
    cr_assert_str_eq(names.names[1].name, "cpu0");
    device_names_finish(&names);
    unlink(path);
    cr_assert_eq(device_names_load("/nonexistent/names", &names), 0);
    cr_assert_eq(names.count, 0);
}

static const struct inventory_entry *first_place(const struct inventory *inventory)
{
    const struct device_wish wish = {.count = 1};
    const struct inventory_entry *found[PROTOCOL_VDEVS_MAX];
    char error[256];

    cr_assert_eq(device_place(inventory, &wish, NULL, found, error, sizeof(error)), 0);
    return found[0];
}

Test(device_names, a_device_is_found_by_all_its_names)
{
    struct inventory_entry entries[] = {entry(true, "NVIDIA H200", 0, "aa112233", "0000:3b:00.0"),
                                        entry(true, "NVIDIA H200", 1, "aa115566", "0000:5e:00.0"),
                                        entry(false, "pthread-Xeon", 0, "", "")};
    struct inventory inventory = {entries, 3};
    const struct inventory_entry *found = NULL;
    char error[1024];

    strcpy(entries[0].name, "gpu0");
    strcpy(entries[1].name, "gpu1");
    strcpy(entries[2].name, "cpu0");
    static const struct {
        const char *text;
        size_t index;
    } good[] = {{"gpu1", 1},   {"0000:3b:00.0", 0},  {"5e:00.0", 1},
                {"aa1155", 1}, {"GPU-AA11-2233", 0}, {"xeon", 2}};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        cr_assert_eq(device_resolve(&inventory, good[i].text, &found, error, sizeof(error)), 0);
        cr_assert_eq(found, &entries[good[i].index], "%s", good[i].text);
    }
    cr_assert_eq(device_resolve(&inventory, "H200", &found, error, sizeof(error)), -ENOTUNIQ);
    cr_assert(strstr(error, "gpu0, gpu1"));
    cr_assert(!strstr(error, "cpu0"));
    cr_assert_eq(device_resolve(&inventory, "aa11", &found, error, sizeof(error)), -ENOTUNIQ);
    cr_assert_eq(device_resolve(&inventory, "gpu7", &found, error, sizeof(error)), -ENODEV);
    cr_assert_eq(device_resolve(&inventory, "", &found, error, sizeof(error)), -ENODEV);
    cr_assert_eq(first_place(&inventory), &entries[0]);
    inventory = (struct inventory){entries + 2, 1};
    cr_assert_eq(first_place(&inventory), &entries[2]);
    inventory.count = 0;
    cr_assert_null(first_place(&inventory));
}

/* "0121": the index of the entry that each virtual device starts on, "-" where it has none. */
static void expect_places(const struct inventory *inventory, size_t count, const char *names,
                          const char *expected)
{
    struct device_wish wish = {.count = count};
    const struct inventory_entry *found[PROTOCOL_VDEVS_MAX];
    char text[PROTOCOL_VDEVS_MAX + 1] = "", error[256], copy[128];
    char *rest = strcpy(copy, names);

    for (char *name = strtok_r(rest, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        wish.names[wish.named++] = name;
    cr_assert_eq(device_place(inventory, &wish, NULL, found, error, sizeof(error)), 0, "%s", error);
    for (size_t i = 0; i < count; i++)
        text[i] = found[i] ? (char)('0' + (found[i] - inventory->entries)) : '-';
    cr_assert_str_eq(text, expected, "%zu devices, named \"%s\"", count, names);
    for (size_t i = count; i < PROTOCOL_VDEVS_MAX; i++)
        cr_assert_null(found[i]);
}

Test(device_names, virtual_devices_spread_over_gpus_or_over_all)
{
    struct inventory_entry entries[] = {entry(false, "A", 0, "", ""), entry(true, "B", 0, "", ""),
                                        entry(true, "C", 0, "", ""), entry(false, "D", 0, "", "")};
    struct inventory inventory = {entries, 4};
    static const char *const names[] = {"cpu0", "gpu0", "gpu1", "cpu1"};

    for (size_t i = 0; i < 4; i++)
        strcpy(entries[i].name, names[i]);
    expect_places(&inventory, 1, "", "1");
    expect_places(&inventory, 2, "", "12");
    expect_places(&inventory, 3, "", "121");
    expect_places(&inventory, 4, "gpu1", "2112");
    expect_places(&inventory, 3, "cpu1 cpu1", "331");
    expect_places(&inventory, 2, "gpu1 gpu1", "22");
    inventory.count = 1;
    expect_places(&inventory, 3, "", "000");
    entries[1].key = entries[3].key;
    entries[1].info = entries[3].info;
    inventory.count = 2;
    expect_places(&inventory, 3, "", "010");
    inventory.count = 0;
    expect_places(&inventory, 2, "", "--");
}

Test(access, the_agents_own_user_and_root_may_do_everything)
{
    cr_assert(access_may_manage(1000, 1000));
    cr_assert(access_may_manage(1000, 0));
    cr_assert(!access_may_manage(0, 1000));
}

/**
 * What a process is to itself as @user of a new user namespace with the numbers @map (none: NULL):
 * 1: the same user; 2: @folder, which another user of the host has, is its own; 4: it may manage.
 */
static int in_user_namespace(const char *map, uid_t user, const char *folder)
{
    int made[2], go[2], status = -1;
    char path[64], byte = 0;

    cr_assert_eq(pipe2(made, O_CLOEXEC) | pipe2(go, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(go[1]);
        if (unshare(CLONE_NEWUSER) || write(made[1], "m", 1) != 1 || read(go[0], &byte, 1) != 1 ||
            (map && setresuid(user, user, user)))
            _exit(128);
        _exit(access_same_user(geteuid(), geteuid()) | folder_is_ours(folder, true) << 1 |
              access_may_manage(geteuid(), geteuid()) << 2);
    }
    close(made[1]);
    cr_assert_eq(read(made[0], &byte, 1), 1, "there are no user namespaces here");
    if (map) {
        snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
        FILE *file = fopen(path, "we");
        cr_assert(file && fputs(map, file) >= 0 && fclose(file) == 0);
    }
    cr_assert_eq(write(go[1], "g", 1), 1);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    close(made[0]);
    close(go[0]);
    close(go[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(access, the_number_of_all_who_have_none_in_a_container_is_nobodys)
{
    static const uid_t nobody = 65534; /* overflowuid, as the kernel sets it. */
    char folder[SCRATCH_MAX];

    if (geteuid() != 0)
        cases_skip("only root may give a user namespace several numbers");
    cr_assert(mkdtemp(scratch(folder, "container")));
    cr_assert_eq(chown(folder, 64002, 64002), 0);
    cr_expect_eq(in_user_namespace(NULL, nobody, folder), 0);
    cr_expect_eq(in_user_namespace("0 100000 65536", nobody, folder), 0);
    cr_expect_eq(in_user_namespace("0 100000 65536", 1000, folder), 5);
    cr_expect_eq(in_user_namespace("0 0 4294967295", nobody, folder), 5, "all have numbers here");
    cr_expect_eq(in_user_namespace("64002 64002 1", 64002, folder), 7);
    rmdir(folder);
}

Test(access, a_socket_is_replaced_only_when_no_process_listens)
{
    char folder[SCRATCH_MAX], path[SCRATCH_MAX + 8], long_path[SCRATCH_MAX + 128];
    struct stat stat_now;
    int first = -1, other = -1, client;

    cr_assert(mkdtemp(scratch(folder, "listen")));
    snprintf(path, sizeof(path), "%s/socket", folder);
    cr_assert_eq(access_listen(path, SOCK_STREAM, 1, &first), 0);
    cr_expect_eq(stat(path, &stat_now), 0);
    cr_expect_eq(stat_now.st_mode & 07777, 0600);
    cr_expect_eq(access_listen(path, SOCK_STREAM, 1, &other), -EADDRINUSE);
    cr_expect_eq(other, -1);
    close(first);
    cr_expect_eq(agent_connect(path, geteuid()), -ECONNREFUSED);
    cr_assert_eq(access_listen(path, SOCK_STREAM, 1, &other), 0);
    client = agent_connect(path, geteuid());
    cr_expect_geq(client, 0);
    close(client);
    close(other);
    unlink(path);
    rmdir(folder);
    cr_expect_eq(access_listen(path, SOCK_STREAM, 1, &other), -ENOENT);
    snprintf(long_path, sizeof(long_path), "%s/%0100d", folder, 0);
    cr_expect_eq(access_listen(long_path, SOCK_STREAM, 1, &other), -ENAMETOOLONG);
}

Test(paths, a_runtime_folder_that_others_may_enter_is_refused)
{
    char folder[SCRATCH_MAX], inside[SCRATCH_MAX + 8];
    struct paths paths;

    cr_assert(mkdtemp(scratch(folder, "paths")));
    unsetenv("RESEAT_SOCKET");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    cr_assert_eq(paths_find(&paths), 0);
    snprintf(inside, sizeof(inside), "%s/reseat", folder);
    cr_assert_str_eq(paths.folder, inside);
    cr_assert_eq(chmod(inside, 0755), 0);
    cr_assert_eq(paths_find(&paths), -EPERM);
    rmdir(inside);
    cr_assert_eq(symlink("/tmp", inside), 0);
    cr_assert_eq(paths_find(&paths), -EPERM);
    unlink(inside);
    rmdir(folder);
}

Test(paths, a_refused_folder_leaves_nothing_to_use)
{
    char folder[] = "/tmp/reseat-paths-XXXXXX", inside[64];
    struct paths paths;

    cr_assert(mkdtemp(folder));
    unsetenv("RESEAT_SOCKET");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    snprintf(inside, sizeof(inside), "%s/reseat", folder);
    cr_assert_eq(mkdir(inside, 0700), 0);
    cr_assert_eq(chmod(inside, 0770), 0);
    cr_expect_eq(paths_find(&paths), -EPERM);
    cr_expect_str_eq(paths.folder, "");
    cr_expect_str_eq(paths.socket, "");
    cr_expect(strstr(paths.problem, inside), "%s", paths.problem);
    rmdir(inside);
    rmdir(folder);
}

/** Whether a runtime folder beneath @above, of that mode and owner, is taken. */
static bool takes_beneath(uid_t owner, mode_t mode, const char *name)
{
    char above[] = "/tmp/reseat-paths-XXXXXX", beneath[64], path[96];
    struct paths paths;

    cr_assert(mkdtemp(above));
    snprintf(beneath, sizeof(beneath), "%s/ours", above);
    cr_assert_eq(mkdir(beneath, 0700), 0);
    snprintf(path, sizeof(path), "%s/%s", beneath, name);
    cr_assert_eq(chmod(above, mode), 0);
    cr_assert_eq(chown(above, owner, (gid_t)-1), 0);
    setenv("RESEAT_SOCKET", path, 1);
    bool taken = paths_find(&paths) == 0;
    cr_expect(taken == !paths.problem[0]);
    cr_expect(taken || strstr(paths.problem, above), "%s", paths.problem);
    unsetenv("RESEAT_SOCKET");
    strcat(path, ".d");
    rmdir(path);
    rmdir(beneath);
    rmdir(above);
    return taken;
}

Test(paths, a_folder_that_others_could_put_another_in_place_of_is_refused)
{
    static const char *const names[] = {"agent.sock", "other"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        cr_expect(takes_beneath(geteuid(), 0755, names[i]));
        cr_expect(takes_beneath(geteuid(), 01777, names[i]));
        cr_expect(!takes_beneath(geteuid(), 0777, names[i]));
        cr_expect(!takes_beneath(geteuid(), 0775, names[i]));
        if (geteuid() == 0) {
            cr_expect(!takes_beneath(64001, 0755, names[i]));
            cr_expect(!takes_beneath(64001, 01777, names[i]));
        }
    }
}

Test(paths, links_are_followed_once)
{
    char folder[] = "/tmp/reseat-paths-XXXXXX", real[64], link[64], path[96];
    struct paths paths;

    cr_assert(mkdtemp(folder));
    snprintf(real, sizeof(real), "%s/real", folder);
    snprintf(link, sizeof(link), "%s/link", folder);
    cr_assert_eq(mkdir(real, 0700), 0);
    cr_assert_eq(symlink(real, link), 0);
    snprintf(path, sizeof(path), "%s/agent.sock", link);
    setenv("RESEAT_SOCKET", path, 1);
    cr_expect_eq(paths_find(&paths), -EPERM, "the folder itself may be no link");
    unsetenv("RESEAT_SOCKET");
    setenv("XDG_RUNTIME_DIR", link, 1);
    cr_assert_eq(paths_find(&paths), 0);
    snprintf(path, sizeof(path), "%s/reseat", real);
    cr_expect_str_eq(paths.folder, path);
    strcat(path, "/agent.sock");
    cr_expect_str_eq(paths.socket, path);
    rmdir(paths.folder);
    unlink(link);
    rmdir(real);
    rmdir(folder);
}

Test(paths, another_users_runtime_folder_is_not_taken_for_ours)
{
    char folder[] = "/tmp/reseat-paths-XXXXXX", inside[64];
    struct paths paths;

    cr_assert(mkdtemp(folder));
    unsetenv("RESEAT_SOCKET");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    cr_assert_eq(chmod(folder, 0777), 0);
    /* The default may be refused as well; all that counts is that this one is let be. */
    (void)!paths_find(&paths);
    snprintf(inside, sizeof(inside), "%s/reseat", folder);
    cr_expect_eq(access(inside, F_OK), -1);
    cr_expect_neq(strncmp(paths.folder, folder, strlen(folder)), 0);
    rmdir(folder);
}

Test(paths, the_variable_names_the_socket)
{
    char folder[SCRATCH_MAX], path[SCRATCH_MAX + 16];
    struct paths paths;

    cr_assert(mkdtemp(scratch(folder, "paths")));
    snprintf(path, sizeof(path), "%s/agent.sock", folder);
    setenv("RESEAT_SOCKET", path, 1);
    cr_assert_eq(paths_find(&paths), 0);
    cr_assert_str_eq(paths.socket, path);
    cr_assert_str_eq(paths.folder, folder);
    snprintf(path, sizeof(path), "%s/other", folder);
    setenv("RESEAT_SOCKET", path, 1);
    cr_assert_eq(paths_find(&paths), 0);
    cr_assert_str_eq(paths.socket, path);
    cr_assert(access(strcat(path, ".d"), X_OK) == 0);
    rmdir(path);
    rmdir(folder);
}

Test(environment, the_lister_sees_the_drivers_variables_of_the_client_only)
{
    char a[] = "HOME=/h", b[] = "POCL_DEVICES=old";
    char *base[] = {a, b, NULL}, **made;

    cr_assert_eq(environment_for_lister(base, "OCL_ICD_VENDORS=/v\nRUSTICL_ENABLE=x\n", &made), 0);
    cr_assert_str_eq(made[0], "HOME=/h");
    cr_assert_str_eq(made[1], "OCL_ICD_VENDORS=/v");
    cr_assert_str_eq(made[2], "RUSTICL_ENABLE=x");
    cr_assert_null(made[3]);
    free(made);
}

Test(environment, a_client_cannot_give_the_lister_anything_else)
{
    char home[] = "HOME=/h", *base[] = {home, NULL}, **made;

    cr_assert_eq(
        environment_for_lister(base, "LD_PRELOAD=/evil.so\nPOCL_DEVICES=basic\nPATH=/e\n", &made),
        0);
    cr_expect_str_eq(made[0], "HOME=/h");
    cr_expect_str_eq(made[1], "POCL_DEVICES=basic");
    cr_expect_null(made[2]);
    free(made);
}
