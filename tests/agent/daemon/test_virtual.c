#include "tests/support/cases.h"
#include <jansson.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* Several virtual devices of one program. */

TestSuite(virtual, .init = harness_init, .fini = harness_finish, .timeout = 120);

/* Where the virtual devices of the first program are: "gpu0,cpu1", "-" for a suspended one. */
static const char *places(void)
{
    static char text[8 * PROTOCOL_VDEVS_MAX];
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps"), *vdev;
    json_t *app = json_array_get(json_object_get(object, "apps"), 0);
    size_t i;

    text[0] = '\0';
    json_array_foreach(json_object_get(app, "vdevs"), i, vdev)
    {
        cr_assert_eq((size_t)harness_number(vdev, "vdev"), i);
        bool away = json_is_true(json_object_get(vdev, "suspended"));
        strcat(text, i ? "," : "");
        strcat(text, away ? "-" : harness_text(vdev, "device"));
    }
    return text;
}

static pid_t start_several(const char *name, const char *devices, const char *count,
                           const char *how)
{
    setenv("FAKE_MOVE", how, 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", name, "--device", devices,
                              "--devices", count, "--", harness_program(), "60", NULL);
    cr_assert(harness_state(name, "running", 10000));
    for (int tried = 0; tried < 200 && strlen(places()) < 5 * strtoul(count, NULL, 10) - 1; tried++)
        usleep(25000); /* until a status with all of them, of names of four letters, has come */
    return pid;
}

Test(virtual, virtual_devices_start_where_they_are_named_and_then_spread)
{
    pid_t pid = start_several("app", "cpu1,gpu0", "4", "done");
    cr_assert_str_eq(places(), "cpu1,gpu0,gpu0,gpu0");
    cr_assert(strstr(RESEAT("ps")->out, "cpu1,gpu0,gpu0,gpu0"));
    harness_end(pid);
    setenv("POCL_FAKE_DEVICES", "cpu:one,cpu:two", 1);
    RESEAT("devices");
    pid = harness_spawn(harness_reseat(), "run", "--device", "two,one", harness_program(), "60",
                        NULL);
    cr_assert(harness_state("fake_program", "running", 10000));
    /* cpu0 and cpu1 are names of those before. */
    cr_assert(harness_prints("ps", NULL, "cpu3,cpu2", 5000), "%s", RESEAT("ps")->out);
    harness_end(pid);
    cr_assert_eq(RESEAT("run", "--devices", "0", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--devices", "33", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--devices", "two", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--devices", "1", "--device", "cpu0,cpu1", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device", "cpu0,,cpu1", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device",
                        "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,1,2,3,4,5,6,7", "true")
                     ->status,
                 2);
    cr_assert_eq(RESEAT("run", "--device", "cpu0,gpu9", "true")->status, 3);
}

Test(virtual, one_virtual_device_moves_by_itself)
{
    pid_t pid = start_several("app", "gpu0,cpu0", "2", "done");
    harness_says(RESEAT("move", "app:1", "cpu1"), 0, "from cpu0 to cpu1");
    cr_assert_str_eq(places(), "gpu0,cpu1");
    cr_assert_eq(RESEAT("suspend", "app:0")->status, 0);
    cr_assert_str_eq(places(), "-,cpu1");
    cr_assert(strstr(RESEAT("ps")->out, "-,cpu1"));
    cr_assert(harness_state("app", "running", 1000));
    cr_assert_eq(RESEAT("resume", "app:1")->status, 0);
    cr_assert_eq(RESEAT("resume", "app:0")->status, 0);
    cr_assert_str_eq(places(), "gpu0,cpu1");
    cr_assert_eq(RESEAT("move", "app:2", "cpu1")->status, 3);
    cr_assert_eq(RESEAT("move", "nobody:1", "cpu1")->status, 3);
    cr_assert_eq(RESEAT("move", "app:x", "cpu1")->status, 3);
    harness_end(pid);
    /* A program may be called so. */
    pid = harness_start("app:1", "done");
    harness_says(RESEAT("move", "app:1", "cpu1"), 0, "from gpu0 to cpu1");
}

/* The agent's table of them grows when the program says how many it has, and a new agent reads what
 * the one before it saved of all of them. */
Test(virtual, as_many_as_there_may_be_move_by_themselves)
{
    char expected[5 * PROTOCOL_VDEVS_MAX + 1] = "";
    start_several("app", "cpu0,cpu1", "32", "done");

    cr_assert_eq(RESEAT("move", "app:31", "cpu0")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app:20")->status, 0);
    for (int i = 0; i < PROTOCOL_VDEVS_MAX; i++)
        sprintf(expected + strlen(expected), "%s%s", i ? "," : "",
                i == 0 || i == 31 ? "cpu0"
                : i == 1          ? "cpu1"
                : i == 20         ? "-"
                                  : "gpu0");
    cr_assert_str_eq(places(), expected);
    cr_assert(strstr(RESEAT("ps")->out, expected));
    cr_assert_eq(RESEAT("move", "app:32", "cpu0")->status, 3);
    cr_assert(strstr(RESEAT("explain", "app:31")->out, "virtual device 31, cpu0"));
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("app", "running", 10000));
    cr_assert_str_eq(places(), expected);
    harness_says(RESEAT("move", "app", "cpu1"), 0, "gpu0,gpu0,cpu0");
    cr_assert_eq(RESEAT("resume", "app", "cpu1")->status, 0);
    cr_assert(strstr(places(), "cpu1,cpu1,cpu1"));
    cr_assert_null(strstr(places(), "gpu0"));
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
}

/* The program is known before its first OpenCL call has opened its devices. */
Test(virtual, moves_wait_until_a_program_that_starts_has_its_virtual_devices)
{
    setenv("FAKE_MOVE", "done", 1);
    setenv("FAKE_OPENING_MS", "1000", 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", "app", "--device", "gpu0,cpu0",
                              "--", harness_program(), "60", NULL);
    cr_assert(harness_state("app", "running", 10000));
    harness_says(RESEAT("move", "app:1", "cpu1"), 0, "to cpu1");
    cr_assert_str_eq(places(), "gpu0,cpu1");
    harness_end(pid);
    pid = harness_spawn(harness_reseat(), "run", "--name", "two", "--device", "gpu0,cpu0", "--",
                        harness_program(), "60", NULL);
    cr_assert(harness_state("two", "running", 10000));
    cr_assert_neq(RESEAT("move", "two:3", "cpu1")->status, 0);
    harness_end(pid);
    pid = harness_spawn(harness_reseat(), "run", "--name", "all", "--device", "gpu0,cpu0", "--",
                        harness_program(), "60", NULL);
    cr_assert(harness_state("all", "running", 10000));
    cr_assert_eq(RESEAT("move", "all", "cpu1")->status, 0);
    cr_assert_str_eq(places(), "cpu1,cpu1");
}

Test(virtual, without_a_number_all_virtual_devices_are_meant)
{
    start_several("app", "gpu0,cpu0,cpu1", "3", "done");
    json_t *object = harness_json(RESEAT("move", "app", "cpu0", "--json"), "move");

    cr_assert_str_eq(harness_text(object, "from"), "gpu0,cpu0,cpu1");
    /* The second was there. */
    json_t *vdevs = json_object_get(object, "vdevs");
    cr_assert_eq(json_array_size(vdevs), 2);
    cr_assert_eq(harness_number(json_array_get(vdevs, 1), "vdev"), 2);
    cr_assert_eq(harness_number(object, "bytes"), 2 * (64 << 20));
    cr_assert_str_eq(places(), "cpu0,cpu0,cpu0");
    cr_assert_eq(RESEAT("suspend", "app:2")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
    cr_assert_str_eq(places(), "-,-,-");
    cr_assert_eq(RESEAT("resume", "app:1", "gpu0")->status, 0);
    cr_assert_eq(RESEAT("resume", "app", "cpu1")->status, 0);
    cr_assert_str_eq(places(), "cpu1,gpu0,cpu1");
    cr_assert_eq(RESEAT("resume", "app")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert_eq(RESEAT("resume", "app")->status, 0);
    cr_assert_str_eq(places(), "cpu1,gpu0,cpu1");
}

Test(virtual, where_one_virtual_device_does_not_move_the_others_are_told_of)
{
    start_several("app", "gpu0,gpu0,gpu0", "3", "fail1");
    json_t *object = harness_json(RESEAT("move", "app", "cpu0", "--json"), "move");
    json_t *vdevs = json_object_get(object, "vdevs");

    cr_assert_eq(harness_number(object, "status"), 1);
    cr_assert_eq(json_array_size(vdevs), 2);
    cr_assert_str_eq(harness_text(json_array_get(vdevs, 0), "result"), "done");
    cr_assert_str_eq(harness_text(json_array_get(vdevs, 1), "result"), "rolled-back");
    cr_assert(strstr(harness_text(object, "reason"), "virtual device 1"));
    cr_assert_str_eq(places(), "cpu0,gpu0,gpu0");
}
