#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cli/image/process.h"
#include "tests/support/folder.h"

/* The folder that CRIU's files are in for a while. */

#define COMMANDS 4
#define TIMES    300

static char path[SCRATCH_MAX];

static void setup(void)
{
    folder_make(path);
}
TestSuite(process_image, .init = setup, .timeout = 100);

static struct image_folder *open_folder(void)
{
    char problem[IMAGE_PROBLEM_MAX];
    struct image_folder *folder = NULL;
    cr_assert_eq(image_folder_open(path, IMAGE_TO_WRITE, &folder, problem), 0, "%s", problem);
    return folder;
}

/** Each has a folder of its own each time, where it finds what it puts there. */
static int begin_and_end(const struct image_folder *folder)
{
    for (unsigned i = 0; i < TIMES; i++) {
        struct process_files files;
        if (process_files_begin(folder, &files) != 0)
            return 1;
        if (mkdirat(files.fd, "core.img", 0700) != 0 ||
            unlinkat(files.fd, "core.img", AT_REMOVEDIR) != 0 || access(files.path, F_OK) != 0)
            return 2;
        process_files_end(&files);
    }
    return 0;
}

Test(process_image, commands_beside_each_other_have_folders_of_their_own)
{
    pid_t children[COMMANDS];
    struct image_folder *folder = open_folder();
    for (unsigned i = 0; i < COMMANDS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(begin_and_end(folder));
        }
    }
    for (unsigned i = 0; i < COMMANDS; i++) {
        int status = 1;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_expect_eq(status, 0, "%#x", status);
    }
    image_folder_close(folder);
}

Test(process_image, what_a_command_left_that_was_killed_is_swept)
{
    struct image_folder *folder = open_folder();
    struct process_files files, after;
    struct stat is;
    pid_t child = fork();
    if (child == 0)
        _exit(process_files_begin(folder, &files));
    waitpid(child, NULL, 0);
    cr_assert_eq(process_files_begin(folder, &files), 0);
    cr_assert_eq(process_files_begin(folder, &after), 0, "beside it");
    cr_assert_eq(stat(files.path, &is), 0, "what somebody has stays");
    DIR *list = opendir(path);
    unsigned count = 0;
    for (const struct dirent *entry; (entry = readdir(list));)
        count += strncmp(entry->d_name, ".process-", 9) == 0;
    closedir(list);
    cr_assert_eq(count, 2);
    process_files_end(&files);
    process_files_end(&after);
    image_folder_close(folder);
}
