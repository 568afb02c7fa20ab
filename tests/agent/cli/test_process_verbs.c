#include "tests/support/cases.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/image/image_write.h"
#include "tests/agent/harness.h"

/* Images of whole processes, by a CRIU that fails where it is told to: this kernel may have none.
 * What CRIU itself does is seen in a guest (tests/vm/process.py). */

static const char fake_criu[] =
    "#!/bin/sh\n"
    "fails() { [ \"$FAKE_CRIU\" = $1 ] && echo \"(00.1) Error (criu/fake.c:1): $1 is wrong\" && "
    "echo 'Error (criu/fake.c:2): It FAILED' && exit 1; }\n"
    "case $1 in\n"
    "check) fails check; exit 0;;\n"
    "dump) echo $$ >\"$FAKE_FOLDER/pid\"; echo \"$@\" >\"$FAKE_FOLDER/said\"\n"
    "  [ \"$FAKE_CRIU\" = late ] && sleep 2\n"
    "  [ \"$6\" = --leave-stopped ] && kill -STOP $3\n"
    "  [ \"$FAKE_CRIU\" = hang ] && exec sleep 1000\n"
    "  fails dump || [ $FAKE_CRIU = dump ] || {\n"
    "    head -c 3000000 /dev/urandom >$5/pages-1.img; echo small >$5/core-${FAKE_THREAD:-$3}.img\n"
    "    : >$5/none.img\n"
    "    [ \"$FAKE_CRIU\" = pack ] && mkdir $5/folder; exit 0; }\n"
    "  kill -CONT $3; exit 1;;\n"
    "restore) echo $$ >\"$FAKE_FOLDER/pid\"; ls -l $3 >\"$FAKE_FOLDER/restored\"\n"
    "  [ \"$FAKE_CRIU\" = hang ] && exec sleep 1000\n"
    "  fails restore; exit 0;;\n"
    "esac\n";

static char folder[160], criu[160];

static void setup(void)
{
    harness_init();
    snprintf(folder, sizeof(folder), "%s/images", harness_folder());
    snprintf(criu, sizeof(criu), "%s/criu", harness_folder());
    int fd = open(criu, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    cr_assert_eq(write(fd, fake_criu, sizeof(fake_criu) - 1), (ssize_t)sizeof(fake_criu) - 1);
    close(fd);
    setenv("FAKE_CRIU", "", 1);
    setenv("FAKE_FOLDER", harness_folder(), 1);
}
TestSuite(process_verbs, .init = setup, .fini = harness_finish, .timeout = 100);

#define KEEP(...)    RESEAT("checkpoint", "kept", "--process", "--to", folder, "--criu", __VA_ARGS__)
#define RESTORE(...) RESEAT("restore", folder, "--criu", __VA_ARGS__)

static size_t images(void)
{
    struct result *result = RESEAT("image", "list", folder, "--json");
    if (result->status == 3)
        return 0;
    json_t *answer = harness_json(result, "image");
    size_t count = json_array_size(json_object_get(answer, "images"));
    return count;
}

/* What CRIU is to read or write goes with the command, whatever becomes of it. */
static void expect_no_files_left(void)
{
    DIR *open = opendir(folder);
    const struct dirent *entry;
    while (open && (entry = readdir(open)))
        cr_expect(strncmp(entry->d_name, ".process-", 9) != 0, "%s is left", entry->d_name);
    if (open)
        closedir(open);
}

/* It says why not, and the program runs on its device. */
static void expect_refused(const struct result *result, int status, const char *words)
{
    cr_expect_eq(result->status, status, "%d: %s", result->status, result->err);
    cr_expect(strstr(result->err, words), "%s", result->err);
    cr_expect(harness_state("kept", "running", 5000), "it does not go on");
    cr_expect_eq(images(), 0);
    expect_no_files_left();
}

Test(process_verbs, without_criu_nothing_is_asked_of_the_program)
{
    harness_start("kept", "done");
    expect_refused(RESEAT("checkpoint", "kept", "--process", "--to", folder, "--criu", "/no/criu"),
                   4, "/no/criu is not here");
    setenv("FAKE_CRIU", "check", 1);
    expect_refused(KEEP(criu), 4, "check is wrong; run criu check as root to see what is missing");
    cr_expect_eq(access(folder, F_OK), -1, "nothing was made for it");
}

Test(process_verbs, options_that_do_not_go_together_are_refused)
{
    cr_expect_eq(KEEP(criu, "--every", "1")->status, 2);
    cr_expect_eq(KEEP(criu, "--max-downtime", "1")->status, 2);
    cr_expect_eq(RESEAT("checkpoint", "kept", "--to", folder, "--end")->status, 2);
    cr_expect_eq(RESEAT("checkpoint", "kept", "--to", folder, "--criu", criu)->status, 2);
}

Test(process_verbs, a_driver_that_stays_is_named_before_anything_is_done)
{
    setenv("FAKE_STAYS", "libvendor.so", 1);
    harness_start("kept", "done");
    expect_refused(KEEP(criu), 4, "libvendor.so stays");
    json_t *answer = harness_json(RESEAT("ps", "--json"), "ps");
    const json_t *app = json_array_get(json_object_get(answer, "apps"), 0);
    cr_expect_eq(harness_number(app, "moves"), 0, "it was suspended in vain");
}

Test(process_verbs, a_program_that_cannot_be_parked_goes_on)
{
    setenv("FAKE_BUSY", "a driver has not let go", 1);
    harness_start("kept", "done");
    expect_refused(KEEP(criu), 1, "a driver has not let go");
}

Test(process_verbs, a_dump_that_fails_leaves_the_program_running)
{
    char log[200];
    harness_start("kept", "done");
    setenv("FAKE_CRIU", "dump", 1);
    expect_refused(KEEP(criu), 1, "CRIU says: dump is wrong");
    snprintf(log, sizeof(log), "%s/criu.log", folder);
    cr_expect_eq(access(log, R_OK), 0, "what CRIU said is kept");
    expect_refused(KEEP(criu, "--end"), 1, "CRIU says: dump is wrong");
}

Test(process_verbs, an_image_that_cannot_be_written_leaves_the_program_running)
{
    harness_start("kept", "done");
    setenv("FAKE_CRIU", "pack", 1);
    struct result *result = KEEP(criu, "--end");
    cr_expect_eq(result->status, 1);
    cr_expect(harness_state("kept", "running", 5000), "it was ended without an image");
    cr_expect_eq(images(), 0);
}

Test(process_verbs, a_process_is_kept_and_goes_on)
{
    harness_start("kept", "done");
    json_t *answer = harness_json(KEEP(criu, "--json"), "checkpoint");
    cr_expect_eq(harness_number(answer, "image_bytes"), 3000006);
    cr_expect_gt(harness_number(answer, "downtime_ns"), 0);
    cr_expect(harness_state("kept", "running", 5000));
    cr_expect_eq(images(), 1);
    cr_expect_eq(RESEAT("image", "verify", folder)->status, 0);
    cr_expect(strstr(RESEAT("image", "inspect", folder)->out, "name \"pages-1.img\""));
    expect_no_files_left();
    cr_expect_eq(KEEP(criu, "--keep", "1")->status, 0);
    cr_expect_eq(images(), 1, "the one before it is still there");
}

Test(process_verbs, with_end_it_is_gone_once_the_image_is_there)
{
    int status;
    pid_t program = harness_start("kept", "done");
    cr_expect_eq(KEEP(criu, "--end")->status, 0);
    cr_assert_eq(waitpid(program, &status, 0), program);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_expect_eq(images(), 1);
}

static void end_criu(void)
{
    char path[200];
    int pid = 0;
    snprintf(path, sizeof(path), "%s/pid", harness_folder());
    FILE *file = fopen(path, "r");
    cr_assert(file);
    cr_expect_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    cr_expect_eq(kill(pid, SIGKILL), 0);
}

Test(process_verbs, a_program_goes_on_when_who_keeps_it_is_killed)
{
    char said[200];
    pid_t program = harness_start("kept", "done");
    setenv("FAKE_CRIU", "hang", 1);
    snprintf(said, sizeof(said), "%s/said", harness_folder());
    pid_t keeper = harness_spawn(harness_reseat(), "checkpoint", "kept", "--process", "--to",
                                 folder, "--criu", criu, (char *)NULL);
    for (int i = 0; i < 1000 && access(said, F_OK) != 0; i++)
        usleep(10000);
    cr_assert_eq(access(said, F_OK), 0);
    sleep(1);
    cr_expect_not(harness_state("kept", "running", 100), "it is not parked");
    kill(keeper, SIGKILL);
    (void)harness_wait(keeper);
    cr_expect(harness_state("kept", "running", 30000), "it waits for nobody");
    harness_end(program);
    /* CRIU is let be: whoever ends it at the wrong moment leaves its code in the program. */
    end_criu();
    setenv("FAKE_CRIU", "", 1);
    program = harness_start("kept", "done");
    cr_expect_eq(KEEP(criu)->status, 0);
    expect_no_files_left(); /* also not those of who was killed */
}

/* CRIU leaves it stopped for the end that it is to have: also when nobody is there any more for
 * that. */
Test(process_verbs, with_end_it_goes_on_when_who_keeps_it_is_killed)
{
    char said[200];
    harness_start("kept", "done");
    setenv("FAKE_CRIU", "late", 1);
    snprintf(said, sizeof(said), "%s/said", harness_folder());
    pid_t keeper = harness_spawn(harness_reseat(), "checkpoint", "kept", "--process", "--end",
                                 "--to", folder, "--criu", criu, (char *)NULL);
    for (int i = 0; i < 1000 && access(said, F_OK) != 0; i++)
        usleep(10000);
    kill(keeper, SIGKILL);
    (void)harness_wait(keeper);
    cr_expect(harness_state("kept", "running", 30000), "it is stopped for ever");
    cr_expect_eq(images(), 0);
}

/* ---- restore ---- */

static void keep_one(void)
{
    pid_t program = harness_start("kept", "done");
    cr_assert_eq(KEEP(criu, "--end")->status, 0);
    (void)waitpid(program, NULL, 0);
}

/* The path of the image's folder. */
static void find_image(char *ret, size_t size)
{
    json_t *answer = harness_json(RESEAT("image", "list", folder, "--json"), "image");
    const json_t *image = json_array_get(json_object_get(answer, "images"), 0);
    snprintf(ret, size, "%s/%s", folder, harness_text(image, "name"));
}

static void expect_not_restored(const struct result *result, int status, const char *words)
{
    char restored[200];
    snprintf(restored, sizeof(restored), "%s/restored", harness_folder());
    cr_expect_eq(result->status, status, "%d: %s", result->status, result->err);
    cr_expect(strstr(result->err, words), "%s", result->err);
    cr_expect_eq(access(restored, F_OK), -1, "CRIU was asked");
    expect_no_files_left();
}

static void read_text(const char *path, char *ret, size_t size)
{
    FILE *file = fopen(path, "r");
    size_t count = file ? fread(ret, 1, size - 1, file) : 0;
    ret[count] = '\0';
    if (file)
        fclose(file);
}

Test(process_verbs, what_runs_is_not_restored_beside_itself)
{
    harness_start("kept", "done");
    cr_assert_eq(KEEP(criu)->status, 0);
    expect_not_restored(RESTORE(criu), 4, "is in use here");
}

/* A thread of it had the number of what runs. */
Test(process_verbs, the_pids_of_threads_are_needed_too)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", getpid());
    setenv("FAKE_THREAD", number, 1);
    keep_one();
    expect_not_restored(RESTORE(criu), 4, number);
}

Test(process_verbs, who_has_the_pid_for_a_moment_is_waited_for)
{
    char said[200], text[400] = "";
    snprintf(said, sizeof(said), "%s/errors", harness_folder());
    pid_t program = harness_start("kept", "done");
    cr_assert_eq(KEEP(criu)->status, 0);
    setenv("FAKE_CRIU", "restore", 1);
    pid_t restores = harness_spawn("sh", "-c", "exec \"$0\" restore \"$1\" --criu \"$2\" 2>\"$3\"",
                                   harness_reseat(), folder, criu, said, (char *)NULL);
    for (int i = 0; i < 3000 && !strstr(text, "waiting for pid"); i++) {
        usleep(10000);
        read_text(said, text, sizeof(text));
    }
    harness_end(program);
    cr_expect_eq(harness_wait(restores), 1);
    read_text(said, text, sizeof(text));
    cr_expect(strstr(text, "waiting for pid"), "%s", text);
    cr_expect(strstr(text, "CRIU says: restore is wrong"), "%s", text);
}

Test(process_verbs, a_damaged_image_is_not_restored)
{
    char chunks[200], path[500] = "";
    keep_one();
    snprintf(chunks, sizeof(chunks), "%s/chunks", folder);
    DIR *open = opendir(chunks);
    for (const struct dirent *entry; (entry = readdir(open));)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", chunks, entry->d_name);
    closedir(open);
    FILE *file = fopen(path, "r+");
    fseek(file, 1000, SEEK_SET);
    fputs("damage", file);
    fclose(file);
    expect_not_restored(RESTORE(criu), 1, "is not restored");
    cr_assert_eq(unlink(path), 0);
    expect_not_restored(RESTORE(criu), 1, "it is missing");
}

Test(process_verbs, an_image_of_no_process_is_not_restored)
{
    struct image_manifest manifest = {0};
    const struct image_plan plan = {.manifest = &manifest};
    struct image_written written;
    struct image_folder *open;
    char problem[IMAGE_PROBLEM_MAX];
    expect_not_restored(RESTORE(criu), 3, folder);
    cr_assert_eq(image_folder_open(folder, IMAGE_TO_WRITE, &open, problem), 0);
    image_manifest_add(&manifest, IMAGE_ABOUT)->about->program = strdup("other");
    cr_assert_eq(image_write(open, &plan, &written, problem), 0);
    image_manifest_finish(&manifest);
    image_folder_close(open);
    expect_not_restored(RESTORE(criu), 3, "there is no image of a whole process");
    expect_not_restored(RESTORE(criu, "--image", written.name), 3, "the image is not one");
    expect_not_restored(RESTORE(criu, "--image", "../x"), 1, "");
}

Test(process_verbs, a_restore_that_fails_can_be_tried_again)
{
    char image[256], claim[300];
    keep_one();
    find_image(image, sizeof(image));
    snprintf(claim, sizeof(claim), "%s/restored", image);
    setenv("FAKE_CRIU", "restore", 1);
    for (int i = 0; i < 2; i++) {
        harness_says(RESTORE(criu), 1, "CRIU says: restore is wrong");
        cr_expect_eq(access(claim, F_OK), -1, "it is claimed by nobody");
    }
    expect_no_files_left();
}

Test(process_verbs, an_image_is_restored_on_one_host)
{
    char image[256], claim[300];
    keep_one();
    find_image(image, sizeof(image));
    snprintf(claim, sizeof(claim), "%s/restored", image);
    harness_write(claim, "elsewhere");
    cr_assert_eq(chmod(claim, 0600), 0);
    expect_not_restored(RESTORE(criu), 4, "was already restored on elsewhere");
    setenv("FAKE_CRIU", "restore", 1);
    struct result *result = RESTORE(criu, "--again");
    cr_expect(strstr(result->err, "CRIU says: restore is wrong"), "%s", result->err);
}

/* Nor does the second take the first one's claim away. */
Test(process_verbs, an_image_is_restored_by_one_at_a_time)
{
    char image[256], path[300];
    keep_one();
    find_image(image, sizeof(image));
    setenv("FAKE_CRIU", "hang", 1);
    pid_t first = harness_spawn(harness_reseat(), "restore", folder, "--criu", criu, (char *)NULL);
    snprintf(path, sizeof(path), "%s/restored", harness_folder());
    for (int i = 0; i < 1000 && access(path, F_OK) != 0; i++)
        usleep(10000);
    setenv("FAKE_CRIU", "", 1);
    const struct result *result = RESTORE(criu);
    cr_expect_eq(result->status, 4, "%d: %s", result->status, result->err);
    cr_expect(strstr(result->err, "is being restored by another process"), "%s", result->err);
    snprintf(path, sizeof(path), "%s/restored", image);
    cr_expect_eq(access(path, F_OK), 0);
    end_criu();
    (void)harness_wait(first);
    cr_expect_neq(access(path, F_OK), 0, "CRIU failed");
    expect_no_files_left();
}
