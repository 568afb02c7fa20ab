/**
 * Does with descriptors what programs do: it closes 0 to 2 before it uses OpenCL, closes all that
 * it does not know, puts a file of its own under every number, forks, and lets children close
 * everything. What is in its files, where it reads them and which numbers are open is its own doing
 * each time.
 *
 *   descriptors
 */
#include "prog.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1024, NUMBERS = 1024, KEPT = 3, CHILD_STATUS = 7, STAY_MS = 400 };

static const char source[] = "__kernel void twice(__global uint *a) {\n"
                             "    a[get_global_id(0)] *= 2u;\n"
                             "}\n";
static const char text[] = "what the program wrote\n";

static uint64_t compute(const struct prog *p, cl_kernel kernel, uint64_t seed)
{
    struct rng r = rng_seed(seed);
    uint32_t want[WORDS], got[WORDS];
    uint64_t sum = 0;

    rng_fill(&r, want, sizeof want);
    cl_mem mem =
        prog_buffer(p->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof want, want);
    prog_arg(kernel, 0, sizeof mem, &mem);
    prog_run(p->queue, kernel, WORDS);
    prog_read(p->queue, mem, 0, sizeof got, got);
    for (int i = 0; i < WORDS; i++)
        want[i] *= 2;
    prog_same("kernel", got, want, sizeof got);
    sum_bytes(&sum, got, sizeof got);
    OK(clReleaseMemObject(mem));
    return sum;
}

/* A file without a name, with the text in it, read from where it begins. */
static int own_file(void)
{
    char path[] = "/tmp/descriptors-XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    REQUIRE(unlink(path) == 0);
    REQUIRE(write(fd, text, sizeof text) == sizeof text);
    REQUIRE(lseek(fd, 3, SEEK_SET) == 3);
    return fd;
}

/* Nobody read it, wrote to it or made it another. */
static void check_file(int fd, const struct stat *was)
{
    char got[2 * sizeof text];
    struct stat is;
    REQUIRE(fstat(fd, &is) == 0);
    REQUIRE(is.st_ino == was->st_ino && is.st_dev == was->st_dev);
    REQUIRE(lseek(fd, 0, SEEK_CUR) == 3);
    REQUIRE(pread(fd, got, sizeof got, 0) == sizeof text);
    prog_same("a file of the program's", got, text, sizeof text);
}

static void stay(const struct prog *p, cl_kernel kernel)
{
    double end = prog_now() + STAY_MS * 1e-3;
    while (prog_now() < end)
        compute(p, kernel, 1);
}

/* Every number leads to a file of ours: what the library takes for its own is in it. */
static void take_all_numbers(const struct prog *p, cl_kernel kernel)
{
    int file = own_file();
    struct stat was;
    REQUIRE(fstat(file, &was) == 0);
    for (int fd = KEPT; fd < NUMBERS; fd++)
        REQUIRE(fd == file || dup2(file, fd) == fd);
    stay(p, kernel);
    check_file(file, &was);
    for (int fd = KEPT; fd < NUMBERS; fd++) {
        struct stat is;
        REQUIRE(fstat(fd, &is) == 0);
        REQUIRE(is.st_ino == was.st_ino && is.st_dev == was.st_dev);
    }
    closefrom(KEPT);
}

/* The same with sockets, which take and give more than files do. */
static void take_all_numbers_for_a_socket(const struct prog *p, cl_kernel kernel)
{
    int ends[2];
    char got[2 * sizeof text];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    REQUIRE(dup2(ends[1], KEPT + 10) == KEPT + 10);
    REQUIRE(write(KEPT + 10, text, sizeof text) == sizeof text);
    for (int fd = KEPT + 11; fd < NUMBERS; fd++)
        REQUIRE(dup2(ends[0], fd) == fd);
    stay(p, kernel);
    REQUIRE(recv(NUMBERS - 1, got, sizeof got, MSG_DONTWAIT) == sizeof text);
    prog_same("what came by a socket of the program's", got, text, sizeof text);
    REQUIRE(recv(KEPT + 10, got, sizeof got, MSG_DONTWAIT) == -1);
    closefrom(KEPT);
}

/* A daemon's first steps, in a child that never uses OpenCL. */
static void daemonise(void)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        closefrom(0);
        if (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2 || setsid() < 0)
            _exit(1);
        int file = own_file();
        struct stat was;
        if (file != 3 || fstat(file, &was) != 0)
            _exit(1);
        check_file(file, &was);
        _exit(CHILD_STATUS);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_STATUS);
}

int main(void)
{
    struct prog p;
    struct rlimit limit;
    uint64_t sum = 0;
    int streams[3];

    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = NUMBERS;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int fd = 0; fd < 3; fd++) {
        streams[fd] = fcntl(fd, F_DUPFD, 500);
        close(fd);
    }
    prog_open(&p);
    cl_program program = prog_build(&p, source, "");
    cl_kernel kernel = prog_kernel(program, "twice");
    sum_word(&sum, compute(&p, kernel, 1));
    /* The first three are the next that it opens. */
    struct stat was[3];
    for (int fd = 0; fd < 3; fd++) {
        REQUIRE(own_file() == fd);
        REQUIRE(fstat(fd, &was[fd]) == 0);
    }
    stay(&p, kernel);
    for (int fd = 0; fd < 3; fd++) {
        check_file(fd, &was[fd]);
        REQUIRE(dup2(streams[fd], fd) == fd);
    }
    do {
        closefrom(KEPT);
        take_all_numbers(&p, kernel);
        take_all_numbers_for_a_socket(&p, kernel);
        daemonise();
        REQUIRE(sum == 0 || compute(&p, kernel, 1) != 0);
        stay(&p, kernel);
    } while (prog_again());
    RELEASE(kernel, program);
    prog_close(&p);
    printf("descriptors checksum %016lx\n", (unsigned long)sum);
    return 0;
}
