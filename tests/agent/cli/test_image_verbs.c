#include "tests/support/cases.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/image/image_lease.h"
#include "state/image/image_write.h"
#include "tests/agent/harness.h"

/* Images on disk, as their owner looks after them, and the verbs that have them made. */

#define SIZE (IMAGE_CHUNK + 1000)

static char folder[160], bytes[SIZE], last[IMAGE_NAME_MAX];

static void setup(void)
{
    harness_init();
    snprintf(folder, sizeof(folder), "%s/images", harness_folder());
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * i / 7 + i);
}
TestSuite(image_verbs, .init = setup, .fini = harness_finish, .timeout = 100);

static const void *look(const struct image_source *source, uint64_t at, size_t size, void *room)
{
    (void)source, (void)size, (void)room;
    return bytes + at;
}

/* An image of a program of that name, with one object, and perhaps a right to run. */
static void write_image_by(const char *program, const char *lease)
{
    const struct image_source source = {.id = 0xabc, .size = SIZE, .written = true, .look = look};
    struct image_manifest manifest = {0};
    const struct image_plan plan = {.manifest = &manifest, .sources = &source, .count = 1};
    struct image_written written;
    struct image_folder *images;
    char problem[IMAGE_PROBLEM_MAX];
    cr_assert_eq(image_folder_open(folder, IMAGE_TO_WRITE, &images, problem), 0, "%s", problem);
    image_manifest_add(&manifest, IMAGE_ABOUT)->about->program = strdup(program);
    image_manifest_add(&manifest, IMAGE_MEMORY)->memory->id = 0xabc;
    if (lease)
        image_manifest_add(&manifest, IMAGE_LEASE)->lease->id = strdup(lease);
    cr_assert_eq(image_write(images, &plan, &written, problem), 0, "%s", problem);
    strcpy(last, written.name);
    image_manifest_finish(&manifest);
    image_folder_close(images);
}

static void write_image(const char *program)
{
    write_image_by(program, NULL);
}

static size_t count(void)
{
    json_t *answer = harness_json(RESEAT("image", "list", folder, "--json"), "image");
    size_t images = json_array_size(json_object_get(answer, "images"));
    return images;
}

static void chunk_of(size_t at, size_t size, char *ret_path, size_t path_size)
{
    char name[IMAGE_CHUNK_NAME];
    struct image_digest digest = image_chunk_digest(bytes + at, size);
    image_chunk_name(&digest, name);
    snprintf(ret_path, path_size, "%s/chunks/%s", folder, name);
}

Test(image_verbs, list_and_inspect_say_what_there_is)
{
    write_image("one");
    write_image("two\x1b[31m");
    cr_assert_eq(count(), 2);
    json_t *answer = harness_json(RESEAT("image", "list", folder, "--json"), "image");
    const json_t *image = json_array_get(json_object_get(answer, "images"), 0);
    cr_expect_str_eq(harness_text(image, "name"), last, "the last first");
    cr_expect_null(strchr(harness_text(image, "program"), '\x1b'));
    cr_expect_eq(harness_number(image, "size_bytes"), SIZE);
    cr_expect_eq(harness_number(image, "chunks"), 2);
    cr_expect(json_is_false(json_object_get(image, "damaged")));
    cr_expect(strstr(RESEAT("image", "list", folder)->out, "one"));
    answer = harness_json(RESEAT("image", "inspect", folder, "--json"), "image");
    const json_t *records = json_object_get(answer, "records");
    cr_expect_eq(json_array_size(records), 3);
    cr_expect_str_eq(harness_text(json_array_get(records, 2), "record"), "contents");
    cr_expect_eq(harness_number(json_array_get(records, 2), "id"), 0xabc);
    cr_expect(strstr(RESEAT("image", "inspect", folder, last)->out, "memory: id 2748"));
    cr_expect_eq(RESEAT("image", "inspect", folder, "../x")->status, 1);
}

Test(image_verbs, verify_finds_a_byte_that_changed)
{
    char path[512], byte;
    write_image("one");
    cr_expect_eq(RESEAT("image", "verify", folder)->status, 0);
    chunk_of(0, IMAGE_CHUNK, path, sizeof(path));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    cr_assert_eq(pread(fd, &byte, 1, 100), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, 100), 1);
    close(fd);
    const struct result *result = harness_ends(RESEAT("image", "verify", folder), 1);
    cr_expect(strstr(result->out, strrchr(path, '/')), "%s", result->out);
    json_t *answer = harness_json(RESEAT("image", "verify", folder, "--json"), "image");
    cr_expect_eq(harness_number(answer, "damaged"), 1);
}

Test(image_verbs, diff_counts_chunks_that_changed)
{
    char first[IMAGE_NAME_MAX];
    write_image("one");
    strcpy(first, last);
    bytes[SIZE - 1] ^= 1;
    write_image("one");
    json_t *answer = harness_json(RESEAT("image", "diff", folder, first, last, "--json"), "image");
    cr_expect_eq(harness_number(answer, "bytes"), 1000);
    answer = harness_json(RESEAT("image", "diff", folder, last, last, "--json"), "image");
    cr_expect_eq(json_array_size(json_object_get(answer, "objects")), 0);
}

Test(image_verbs, prune_keeps_the_last_of_each_program)
{
    char manifest[512];
    for (unsigned i = 0; i < 3; i++) {
        bytes[0] = (char)(100 + i);
        write_image("one");
    }
    write_image("two");
    cr_expect_eq(RESEAT("image", "prune", folder)->status, 0);
    cr_expect_eq(count(), 4, "nothing said that any is to go");
    json_t *answer =
        harness_json(RESEAT("image", "prune", folder, "--keep", "1", "--json"), "image");
    cr_expect_eq(json_array_size(json_object_get(answer, "removed")), 2);
    cr_expect_eq(harness_number(answer, "chunks"), 2);
    cr_expect_eq(count(), 2);
    cr_expect_eq(RESEAT("image", "verify", folder)->status, 0);
    snprintf(manifest, sizeof(manifest), "%s/%s/manifest", folder, last);
    cr_assert_eq(truncate(manifest, 10), 0);
    cr_expect_eq(RESEAT("image", "verify", folder)->status, 1);
    cr_expect_eq(RESEAT("image", "prune", folder, "--keep", "0")->status, 0);
    cr_expect_eq(count(), 1, "what is damaged is no program's");
    cr_expect_eq(RESEAT("image", "prune", folder, "--damaged")->status, 0);
    cr_expect_eq(count(), 0);
}

/* Each may be what its program is recovered from. */
Test(image_verbs, prune_keeps_the_last_by_each_lease)
{
    static const char *const leases[] = {"00000000000000aa", "00000000000000bb"};
    for (unsigned i = 0; i < 4; i++)
        write_image_by("one", leases[i % 2]);
    cr_expect_eq(RESEAT("image", "prune", folder, "--keep", "1")->status, 0);
    cr_expect_eq(count(), 2);
    cr_expect_eq(RESEAT("image", "prune", folder, "--keep", "0")->status, 0);
    cr_expect_eq(count(), 0);
}

Test(image_verbs, folders_of_others_are_refused)
{
    cr_expect_eq(RESEAT("image", "list", folder)->status, 3);
    write_image("one");
    cr_assert_eq(chmod(folder, 0755), 0);
    cr_expect_eq(RESEAT("image", "list", folder)->status, 4);
    cr_expect_eq(RESEAT("image", "prune", folder)->status, 4);
    cr_assert_eq(chmod(folder, 0700), 0);
    cr_expect_eq(RESEAT("image", "list", folder)->status, 0);
}

/* ---- programs; what they do is the stand-in's ---- */

Test(image_verbs, suspend_says_where_the_data_went)
{
    harness_start("kept", "done");
    json_t *answer = harness_json(RESEAT("suspend", "kept", "--to", folder, "--json"), "suspend");
    cr_expect_str_eq(harness_text(answer, "image"), "20260101T000000.000-1");
    cr_expect_eq(harness_number(answer, "freed"), 64 << 20);
    cr_assert(harness_state("kept", "suspended", 5000));
    /* Also where it is suspended already, and a relative path is that of the command. */
    const struct result *result =
        harness_says(RESEAT("suspend", "kept", "--to", "full/"), 1, "no room in /");
    cr_expect(strstr(result->err, "/full"), "%s", result->err);
}

Test(image_verbs, checkpoint_makes_one_or_many)
{
    harness_start("kept", "done");
    json_t *answer =
        harness_json(RESEAT("checkpoint", "kept", "--to", folder, "--max-downtime", "7", "--json"),
                     "checkpoint");
    cr_expect_str_eq(harness_text(answer, "image"), "20260101T000000.001-2");
    cr_expect_eq(harness_number(answer, "downtime_ns"), 7000000);
    cr_expect_eq(harness_number(answer, "bytes"), 0, "none follows");
    cr_expect_eq(RESEAT("checkpoint", "kept", "--to", "full")->status, 1);
    cr_expect_eq(RESEAT("checkpoint", "kept")->status, 2);
    cr_expect_eq(RESEAT("checkpoint", "nobody", "--to", folder)->status, 3);
    cr_expect(harness_state("kept", "running", 5000));
    const struct result *result =
        harness_ends(RESEAT("checkpoint", "kept", "--to", folder, "--keep", "77"), 0);
    cr_expect(strstr(result->err, "older images were not removed: they are used"), "%s",
              result->err);
}

/** Until the agent says that of the images of "kept". False after some seconds. */
static bool comes_to(const char *member, json_int_t least, bool present)
{
    for (unsigned ms = 0; ms < 10000; ms += 50) {
        json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
        const json_t *app = json_array_get(json_object_get(object, "apps"), 0);
        const json_t *images = json_object_get(app, "checkpoints");
        const char *image = json_string_value(json_object_get(images, "image"));
        const json_t *value = json_object_get(images, member);
        json_int_t got = json_is_string(value) ? (json_int_t)strlen(json_string_value(value))
                                               : json_integer_value(value);
        if (strcmp(member, "image") == 0 && image[0])
            got = atoi(image + strlen("20260101T000000."));
        bool is = present ? got >= least : got == 0;
        if (is)
            return true;
        usleep(50000);
    }
    return false;
}

/* The command returns; the agent goes on, and so does the next one. */
Test(image_verbs, checkpoints_are_made_until_they_are_ended)
{
    harness_start("kept", "done");
    harness_says(RESEAT("checkpoint", "kept", "--to", folder, "--every", "0.3", "--keep", "4"), 0,
                 "another follows every 300.0 ms");
    cr_expect(comes_to("image", 4, true), "%s", RESEAT("explain", "kept")->out);
    cr_expect(strstr(RESEAT("explain", "kept")->out, "every 300.0 ms in"));
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_expect(comes_to("keep", 4, true));
    cr_expect(comes_to("image", 8, true));
    harness_says(RESEAT("checkpoint", "kept", "--off"), 0, "no more images");
    cr_expect(comes_to("every_ms", 0, false));
    /* It was told that none follows. */
    json_t *answer =
        harness_json(RESEAT("checkpoint", "kept", "--to", folder, "--json"), "checkpoint");
    cr_expect_eq(harness_number(answer, "image_written"), 0);
    usleep(700000);
    cr_expect(comes_to("every_ms", 0, false));
}

/* Whoever said it was told that none is made any more. */
Test(image_verbs, what_is_ended_while_the_first_is_made_is_not_made_again)
{
    harness_start("kept", "done");
    pid_t command = fork();
    if (command == 0)
        _exit(RESEAT("checkpoint", "kept", "--to", "slow", "--every", "0.1")->status);
    usleep(700000);
    cr_expect_eq(RESEAT("checkpoint", "kept", "--off")->status, 0);
    int status = 1;
    cr_assert_eq(waitpid(command, &status, 0), command);
    cr_expect_eq(status, 0);
    usleep(500000);
    cr_expect(comes_to("every_ms", 0, false));
    /* What the program kept for the next one went after the first. */
    json_t *answer =
        harness_json(RESEAT("checkpoint", "kept", "--to", folder, "--json"), "checkpoint");
    cr_expect_eq(harness_number(answer, "image_written"), 0);
}

Test(image_verbs, what_fails_first_is_not_made_again)
{
    harness_start("kept", "done");

    cr_expect_eq(RESEAT("checkpoint", "kept", "--to", "full", "--every", "0.1")->status, 1);
    cr_expect(comes_to("every_ms", 0, false));
    cr_expect_eq(RESEAT("checkpoint", "kept", "--every", "1")->status, 2, "without a folder");
}

/* ---- a program that may not run ---- */

static void says_fenced(bool fenced, const char *state)
{
    for (unsigned ms = 0; ms < 10000; ms += 50, usleep(50000)) {
        json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
        const json_t *app = json_array_get(json_object_get(object, "apps"), 0);
        bool is = json_is_true(json_object_get(app, "fenced")) == fenced &&
                  strcmp(harness_text(app, "state"), state) == 0;
        if (is)
            return;
    }
    cr_assert_fail("not %s: %s", state, RESEAT("ps")->out);
}

static void is_refused(const struct result *result)
{
    cr_expect_eq(result->status, 4, "%d", result->status);
    cr_expect(strstr(result->err, "is fenced: process 7 on other took its right to run"), "%s",
              result->err);
}

Test(image_verbs, a_program_that_may_not_run_is_said_to_be_fenced_and_is_asked_nothing)
{
    static const char why[] = "process 7 on other took its right to run, of the images in /disk";
    char path[200];

    snprintf(path, sizeof(path), "%s/fenced", harness_folder());
    setenv("FAKE_FENCED", path, 1);
    harness_start("kept", "done");
    says_fenced(false, "running");
    FILE *file = fopen(path, "w");
    cr_assert(file && fprintf(file, "%s\n", why) > 0 && fclose(file) == 0);
    says_fenced(true, "fenced");
    cr_expect(strstr(RESEAT("ps")->out, " fenced "), "%s", RESEAT("ps")->out);
    const char *explained = RESEAT("explain", "kept")->out;
    cr_expect(strstr(explained, "it is fenced") && strstr(explained, "process 7"), "%s", explained);
    is_refused(RESEAT("move", "kept", "cpu1"));
    is_refused(RESEAT("suspend", "kept"));
    is_refused(RESEAT("checkpoint", "kept", "--to", folder));
    is_refused(RESEAT("protect", "kept"));
    is_refused(RESEAT("prewarm", "kept", "cpu1"));
    cr_assert_eq(unlink(path), 0);
    says_fenced(false, "running");
    cr_expect_eq(RESEAT("suspend", "kept")->status, 0);
}

/* What it executes is told which right its process has. */
Test(image_verbs, a_process_keeps_its_lease_when_it_executes_another_program)
{
    setenv("FAKE_RIGHT", "/disk/of mine", 1);
    harness_says(RESEAT("run", "--", harness_program(), "1", "exec"), 0,
                 "right /disk/of mine 0123456789abcdef\n");
}

/* ---- recover ---- */

static struct lease lease;
static atomic_bool silent;

static void *say_that_it_lives(void *unused)
{
    while (!atomic_load(&silent)) {
        cr_assert_eq(lease_renew(&lease, LEASE_RUNNING), 0);
        usleep(200000);
    }
    return unused;
}

/* An image of a program on the host "gone", which says that it lives as long as that is not
 * silent. */
static void write_image_with_lease(void)
{
    struct image_manifest manifest = {0};
    const struct image_plan plan = {.manifest = &manifest};
    struct image_written written;
    struct image_folder *images;
    char problem[IMAGE_PROBLEM_MAX];
    cr_assert_eq(image_folder_open(folder, IMAGE_TO_WRITE, &images, problem), 0, "%s", problem);
    cr_assert_eq(lease_begin(images->path, 1000, &lease), 0);
    struct image_about *about = image_manifest_add(&manifest, IMAGE_ABOUT)->about;
    about->program = strdup("false");
    about->host = strdup("gone");
    image_manifest_add(&manifest, IMAGE_LEASE)->lease->id = strdup(lease.id);
    (void)image_manifest_add(&manifest, IMAGE_PROGRESS);
    struct image_command *command = image_manifest_add(&manifest, IMAGE_COMMAND)->command;
    command->executable = (struct image_blob){(unsigned char *)strdup("/bin/false"), 10};
    command->directory = (struct image_blob){(unsigned char *)strdup("/"), 1};
    command->arguments = (struct image_blob){(unsigned char *)strdup("false"), 6};
    cr_assert_eq(image_write(images, &plan, &written, problem), 0, "%s", problem);
    image_manifest_finish(&manifest);
    image_folder_close(images);
}

static void recovers_from(const char *host, const char *outcome, const char *reason)
{
    json_t *answer = harness_parse(RESEAT("recover", folder, "--from", host, "--json")->out);
    const json_t *program = json_array_get(json_object_get(answer, "programs"), 0);
    cr_assert_str_eq(harness_text(program, "outcome"), outcome);
    const char *said = harness_text(program, "reason");
    cr_assert(strstr(said, reason), "%s", said);
}

static void recovers(const char *outcome, const char *reason)
{
    recovers_from("gone", outcome, reason);
}

/* It has its last image of another. */
Test(image_verbs, recover_finds_a_program_by_the_host_that_has_its_lease)
{
    struct utsname host;
    struct lease taken;
    write_image_with_lease();
    cr_assert_eq(uname(&host), 0);
    cr_assert_eq(lease_take(&lease, LEASE_RUNNING, &taken), 0);
    recovers_from(host.nodename, "cannot", "before it read its progress");
    cr_assert_eq(lease_renew(&taken, LEASE_RUNNING), -ESTALE, "it was started there");
    cr_assert_eq(RESEAT("recover", folder, "--from", "nowhere")->status, 3);
}

Test(image_verbs, recover_leaves_what_lives_and_says_what_it_could_not_start)
{
    pthread_t thread;
    write_image_with_lease();
    cr_assert_eq(pthread_create(&thread, NULL, say_that_it_lives, NULL), 0);
    recovers("alive", "it runs on");
    atomic_store(&silent, true);
    pthread_join(thread, NULL);
    recovers("cannot", "before it read its progress");
    cr_assert_eq(lease_renew(&lease, LEASE_RUNNING), -ESTALE);
}

Test(image_verbs, watch_tries_an_image_again_that_could_not_be_read)
{
    char command[512], manifest[512], line[1024] = "";
    write_image("app");
    snprintf(manifest, sizeof(manifest), "%s/%s/manifest", folder, last);
    cr_assert_eq(chmod(manifest, 0666), 0);
    snprintf(command, sizeof(command), "echo $$; exec %s recover %s --watch --lease 1 2>&1",
             harness_reseat(), folder);
    FILE *watch = popen(command, "re");
    cr_assert(watch && fgets(line, sizeof(line), watch));
    pid_t pid = (pid_t)strtol(line, NULL, 10);
    cr_assert_gt(pid, 0);
    cr_expect(fgets(line, sizeof(line), watch) && strstr(line, "is ignored"), "%s", line);
    usleep(1500000);
    cr_assert_eq(chmod(manifest, 0600), 0);
    cr_expect(fgets(line, sizeof(line), watch) && strstr(line, "without --lease"), "%s", line);
    cr_assert_eq(kill(pid, SIGTERM), 0);
    pclose(watch);
}
