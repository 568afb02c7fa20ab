#include <errno.h>
#include <fcntl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/identity/ca.h"
#include "remote/identity/certificate.h"
#include "remote/identity/credentials.h"
#include "remote/server/listener/authority.h"
#include "state/base/files/file.h"
#include "tests/support/folder.h"
#include "tests/support/leaks.h"

#define NOBODY 65534
#define DAY_S  (24 * 3600)

TestSuite(ca, .fini = leaks_check, .timeout = 120);

/** A folder for an authority and for what it hands out. */
struct place {
    char above[SCRATCH_MAX], ca[SCRATCH_MAX + 8], out[SCRATCH_MAX + 32];
};

static void place_init(struct place *place)
{
    folder_make(place->above);
    snprintf(place->ca, sizeof(place->ca), "%s/ca", place->above);
    snprintf(place->out, sizeof(place->out), "%s/laptop.pem", place->above);
}

static void create(const struct place *place)
{
    char problem[FOLDER_PROBLEM_MAX];

    cr_assert_eq(ca_create(place->ca, "gpuhost", time(NULL), problem), 0, "%s", problem);
}

static int issue_at(const struct place *place, const char *name, const char *out, time_t now,
                    char *ret_problem)
{
    struct ca_wish wish = {
        .name = name, .grant = GRANT_ALL, .days = CA_DAYS, .to_file = out ? out : place->out};

    return ca_issue(place->ca, &wish, now, ret_problem);
}

static void issue(const struct place *place, const char *name)
{
    char problem[FOLDER_PROBLEM_MAX];

    cr_assert_eq(issue_at(place, name, NULL, time(NULL), problem), 0, "%s", problem);
}

static void path_of(const struct place *place, const char *name, char ret[PATH_MAX])
{
    cr_assert_eq(ca_file(place->ca, name, ret), 0);
}

static struct credentials credentials_of(const char *path)
{
    struct credentials credentials;
    char problem[FOLDER_PROBLEM_MAX];

    cr_assert_eq(credentials_load(path, &credentials, problem), 0, "%s", problem);
    return credentials;
}

/** What a command says and returns: OpenSSL's own program is the independent judge here. */
__attribute__((format(printf, 3, 4))) static int tool(char *ret_said, size_t size,
                                                      const char *format, ...)
{
    char command[3 * PATH_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    FILE *from = popen(command, "re");
    cr_assert_not_null(from);
    size_t used = fread(ret_said, 1, size - 1, from);
    ret_said[used] = '\0';
    return pclose(from);
}

Test(ca, what_it_makes_is_what_openssl_calls_a_client_and_a_server)
{
    struct place place;
    char said[16384], key[PATH_MAX], server[PATH_MAX];

    place_init(&place);
    create(&place);
    issue(&place, "laptop");
    path_of(&place, CA_KEY, key);
    path_of(&place, CA_SERVER, server);
    cr_expect_eq(tool(said, sizeof(said),
                      "openssl verify -x509_strict -purpose sslclient -CAfile %s %s 2>&1", key,
                      place.out),
                 0, "%s", said);
    cr_expect_neq(tool(said, sizeof(said), "openssl verify -purpose sslserver -CAfile %s %s 2>&1",
                       key, place.out),
                  0);
    cr_expect_eq(tool(said, sizeof(said),
                      "openssl verify -x509_strict -purpose sslserver -verify_hostname gpuhost "
                      "-CAfile %s %s 2>&1",
                      key, server),
                 0, "%s", said);
    cr_expect_neq(
        tool(said, sizeof(said),
             "openssl verify -purpose sslserver -verify_hostname other -CAfile %s %s 2>&1", key,
             server),
        0);
    cr_expect_neq(tool(said, sizeof(said), "openssl verify -purpose sslclient -CAfile %s %s 2>&1",
                       key, server),
                  0);
    cr_expect_eq(tool(said, sizeof(said), "openssl x509 -noout -text -in %s", place.out), 0);
    cr_expect_not_null(strstr(said, "Public Key Algorithm: ED25519"));
    cr_expect_not_null(strstr(said, "CA:FALSE"));
    cr_expect_not_null(strstr(said, "Subject: CN = laptop"));
    cr_expect_not_null(strstr(said, "reseat-grant-1 devices=* memory=- sessions=- share=100"), "%s",
                       said);
    cr_expect_eq(tool(said, sizeof(said), "openssl x509 -noout -text -in %s", key), 0);
    cr_expect_not_null(strstr(said, "CA:TRUE, pathlen:0"));
}

Test(ca, nobody_else_can_read_what_it_writes)
{
    static const char *const names[] = {CA_KEY, CA_SERVER, CA_REVOKED, "issued", "lock"};
    char path[PATH_MAX];
    struct place place;
    struct stat stat_of;

    place_init(&place);
    umask(0);
    create(&place);
    issue(&place, "laptop");
    cr_assert_eq(stat(place.ca, &stat_of), 0);
    cr_expect_eq(stat_of.st_mode & 07777, 0700);
    cr_assert_eq(stat(place.out, &stat_of), 0);
    cr_expect_eq(stat_of.st_mode & 07777, 0600);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        path_of(&place, names[i], path);
        cr_assert_eq(stat(path, &stat_of), 0, "%s", path);
        cr_expect_eq(stat_of.st_mode & 07777, 0600, "%s", path);
    }
}

Test(ca, a_second_one_is_not_made_over_the_first)
{
    char problem[FOLDER_PROBLEM_MAX], key[PATH_MAX], away[PATH_MAX];
    struct place place;

    place_init(&place);
    create(&place);
    cr_expect_eq(ca_create(place.ca, "gpuhost", time(NULL), problem), -EEXIST);
    /* Also where its key is kept elsewhere. */
    path_of(&place, CA_KEY, key);
    snprintf(away, sizeof(away), "%s/away", place.above);
    cr_assert_eq(rename(key, away), 0);
    cr_expect_eq(ca_create(place.ca, "gpuhost", time(NULL), problem), -EEXIST);
    cr_expect_eq(issue_at(&place, "laptop", NULL, time(NULL), problem), -ENOENT);
}

Test(ca, a_folder_that_others_may_enter_is_refused)
{
    char problem[FOLDER_PROBLEM_MAX], server[PATH_MAX];
    struct credentials credentials;
    struct place place;
    size_t count;

    place_init(&place);
    create(&place);
    issue(&place, "laptop");
    cr_assert_eq(chmod(place.ca, 0750), 0);
    cr_expect_eq(issue_at(&place, "other", NULL, time(NULL), problem), -EPERM);
    cr_expect_not_null(strstr(problem, "can be entered by others"), "%s", problem);
    cr_expect_eq(ca_revoke(place.ca, "laptop", time(NULL), &count, problem), -EPERM);
    cr_assert_eq(chmod(place.ca, 0700), 0);
    /* Whoever can change the folder above can put another authority there. */
    cr_assert_eq(chmod(place.above, 0777), 0);
    cr_expect_eq(issue_at(&place, "other", NULL, time(NULL), problem), -EPERM);
    path_of(&place, CA_SERVER, server);
    cr_expect_eq(credentials_load(server, &credentials, problem), -EPERM);
    cr_assert_eq(chmod(place.above, 0700), 0);
    cr_expect_eq(credentials_load(server, &credentials, problem), 0);
    credentials_finish(&credentials);
    if (geteuid() == 0) {
        cr_assert_eq(chown(place.ca, NOBODY, NOBODY), 0);
        cr_expect_eq(issue_at(&place, "other", NULL, time(NULL), problem), -EPERM);
    }
}

Test(ca, credentials_that_others_may_use_are_refused)
{
    char problem[FOLDER_PROBLEM_MAX], link[PATH_MAX];
    struct credentials credentials;
    struct place place;

    place_init(&place);
    create(&place);
    issue(&place, "laptop");
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0601};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        cr_assert_eq(chmod(place.out, modes[i]), 0);
        cr_expect_eq(credentials_load(place.out, &credentials, problem), -EPERM, "%o", modes[i]);
        cr_expect_not_null(strstr(problem, "can be used by others"), "%s", problem);
    }
    cr_assert_eq(chmod(place.out, 0600), 0);
    /* A link is followed, to a file that is looked at where it is. */
    snprintf(link, sizeof(link), "%s/link.pem", place.above);
    cr_assert_eq(symlink(place.out, link), 0);
    cr_assert_eq(credentials_load(link, &credentials, problem), 0, "%s", problem);
    credentials_finish(&credentials);
    if (geteuid() == 0) {
        cr_assert_eq(chown(place.out, NOBODY, NOBODY), 0);
        cr_expect_eq(credentials_load(link, &credentials, problem), -EPERM);
        cr_expect_not_null(strstr(problem, "belongs to another user"), "%s", problem);
    }
    cr_assert_eq(unlink(place.out), 0);
    cr_assert_eq(mkfifo(place.out, 0600), 0);
    cr_expect_eq(credentials_load(place.out, &credentials, problem), -EPERM);
    cr_expect_eq(credentials_load(place.above, &credentials, problem), -EPERM);
    cr_expect_eq(credentials_load("/nowhere/laptop.pem", &credentials, problem), -ENOENT);
}

Test(ca, a_name_has_one_certificate_at_a_time)
{
    char problem[FOLDER_PROBLEM_MAX], second[PATH_MAX];
    struct place place;
    size_t count;

    place_init(&place);
    snprintf(second, sizeof(second), "%s/second.pem", place.above);
    create(&place);
    issue(&place, "laptop");
    const time_t now = time(NULL); /* Not before the certificate begins. */
    cr_expect_eq(issue_at(&place, "laptop", second, now, problem), -EEXIST);
    cr_expect_not_null(strstr(problem, "revoke it first"), "%s", problem);
    cr_expect_eq(access(second, F_OK), -1);
    cr_expect_eq(issue_at(&place, "gpuhost", second, now, problem), -EEXIST);
    /* One that has ended does not count. */
    cr_expect_eq(issue_at(&place, "laptop", second, now + CA_DAYS * DAY_S + 60, problem), 0, "%s",
                 problem);
    cr_expect_eq(ca_revoke(place.ca, "laptop", now, &count, problem), 0);
    cr_expect_eq(count, 2);
    cr_expect_eq(ca_revoke(place.ca, "laptop", now, &count, problem), -ESRCH);
    cr_expect_eq(ca_revoke(place.ca, "nobody", now, &count, problem), -ESRCH);
    cr_assert_eq(unlink(second), 0);
    cr_expect_eq(issue_at(&place, "laptop", second, now, problem), 0, "%s", problem);
}

Test(ca, what_is_revoked_is_found_and_nothing_else)
{
    char problem[FOLDER_PROBLEM_MAX], serials[2][CERTIFICATE_SERIAL_MAX], revoked[PATH_MAX];
    char other[PATH_MAX];
    struct place place;
    size_t count;

    place_init(&place);
    snprintf(other, sizeof(other), "%s/other.pem", place.above);
    create(&place);
    issue(&place, "laptop");
    cr_assert_eq(issue_at(&place, "other", other, time(NULL), problem), 0);
    const char *const paths[] = {place.out, other};
    for (int i = 0; i < 2; i++) {
        struct credentials credentials = credentials_of(paths[i]);
        cr_assert_eq(certificate_serial(credentials.certificate, serials[i]), 0);
        credentials_finish(&credentials);
    }
    path_of(&place, CA_REVOKED, revoked);
    cr_expect_eq(revoked_check(revoked, serials[0], problem), 0);
    cr_assert_eq(ca_revoke(place.ca, "laptop", time(NULL), &count, problem), 0);
    cr_expect_eq(revoked_check(revoked, serials[0], problem), -EKEYREVOKED);
    cr_expect_eq(revoked_check(revoked, serials[1], problem), 0);
    cr_assert_eq(ca_revoke(place.ca, "other", time(NULL), &count, problem), 0);
    cr_expect_eq(revoked_check(revoked, serials[0], problem), -EKEYREVOKED);
    cr_expect_eq(revoked_check(revoked, serials[1], problem), -EKEYREVOKED);
    /* Without a list nobody gets in. */
    cr_assert_eq(chmod(revoked, 0644), 0);
    cr_expect_eq(revoked_check(revoked, serials[1], problem), -EPERM);
    cr_assert_eq(unlink(revoked), 0);
    cr_expect_eq(revoked_check(revoked, serials[1], problem), -ENOENT);
}

Test(ca, a_damaged_list_lets_nobody_in)
{
    static const char *const rows[] = {"4a00 laptop",
                                       "4a00\n",
                                       "4a00 \n",
                                       " laptop\n",
                                       "\n",
                                       "4A00 laptop\n",
                                       "4a00 x\n4a01",
                                       "4a00 x\n\n4a01 y\n",
                                       "4a0000000000000000000000000000000000000000 x\n"};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        cr_expect_eq(revoked_find(rows[i], strlen(rows[i]), "4a00"), -EINVAL, "%s", rows[i]);
    cr_expect_eq(revoked_find("", 0, "4a00"), 0);
    cr_expect_eq(revoked_find("4a00 x\n", 7, "4a00"), -EKEYREVOKED);
    cr_expect_eq(revoked_find("4a00 x\n", 7, "4a0"), 0);
    cr_expect_eq(revoked_find("4a00 x\n", 7, "4a000"), 0);
    cr_expect_eq(revoked_find("4a01 x\n4a00 y\n", 14, "4a00"), -EKEYREVOKED);
}

Test(ca, no_certificate_is_made_that_cannot_be_handed_out)
{
    char problem[FOLDER_PROBLEM_MAX], path[PATH_MAX], *before, *after;
    size_t size_before, size_after;
    struct place place;

    place_init(&place);
    create(&place);
    path_of(&place, "issued", path);
    cr_assert_eq(private_file_read(path, 65536, &before, &size_before, problem), 0);
    folder_put(place.above, "laptop.pem", "something of mine");
    cr_expect_eq(issue_at(&place, "laptop", NULL, time(NULL), problem), -EEXIST);
    cr_expect_not_null(strstr(problem, "already exists"), "%s", problem);
    cr_assert_eq(unlink(place.out), 0);
    cr_expect_eq(issue_at(&place, "laptop", "/nowhere/laptop.pem", time(NULL), problem), -ENOENT);
    cr_assert_eq(private_file_read(path, 65536, &after, &size_after, problem), 0);
    cr_expect_str_eq(before, after);
    private_file_free(before, size_before);
    private_file_free(after, size_after);
    issue(&place, "laptop");
    /* A link that is there already would send the key elsewhere. */
    cr_assert_eq(unlink(place.out), 0);
    cr_assert_eq(symlink("/nowhere/else", place.out), 0);
    cr_expect_eq(issue_at(&place, "second", NULL, time(NULL), problem), -EEXIST);
}

Test(ca, two_commands_do_not_write_at_once)
{
    char problem[FOLDER_PROBLEM_MAX], path[PATH_MAX];
    struct place place;

    place_init(&place);
    create(&place);
    path_of(&place, "lock", path);
    int lock = open(path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(lock, 0);
    cr_assert_eq(flock(lock, LOCK_EX), 0);
    cr_expect_eq(issue_at(&place, "laptop", NULL, time(NULL), problem), -EBUSY);
    close(lock);
    issue(&place, "laptop");
}

/* Each either did all of it or nothing, and said which. */
Test(ca, commands_at_the_same_time_leave_whole_lists)
{
    enum { COMMANDS = 12 };
    char problem[FOLDER_PROBLEM_MAX], path[PATH_MAX], out[PATH_MAX], *list;
    const char *command = getenv("TEST_AUTHORITY");
    unsigned done = 0, lines = 0;
    struct place place;
    FILE *running[COMMANDS];
    size_t size;

    place_init(&place);
    create(&place);
    cr_assert_not_null(command);
    for (int i = 0; i < COMMANDS; i++) {
        snprintf(out, sizeof(out), "%s --ca %s --issue n%d --out %s/n%d.pem 2>/dev/null", command,
                 place.ca, i, place.above, i);
        running[i] = popen(out, "re");
        cr_assert_not_null(running[i]);
    }
    for (int i = 0; i < COMMANDS; i++) {
        char said[512];
        while (fread(said, 1, sizeof(said), running[i]) > 0)
            ;
        bool good = pclose(running[i]) == 0;
        snprintf(out, sizeof(out), "%s/n%d.pem", place.above, i);
        cr_expect_eq(access(out, F_OK) == 0, good, "%d", i);
        done += good;
    }
    path_of(&place, "issued", path);
    cr_assert_eq(private_file_read(path, 65536, &list, &size, problem), 0);
    for (size_t i = 0; i < size; i++)
        lines += list[i] == '\n';
    cr_expect_geq(done, 1);
    cr_expect_eq(lines, done + 1, "%u lines, %u done", lines, done);
    private_file_free(list, size);
}

Test(ca, lists_that_are_damaged_stop_it)
{
    static const char *const rows[] = {"4a00\n",        "4a00 x laptop\n",  "4a00 1 laptop",
                                       "zz 1 laptop\n", "4a00 1 lap/top\n", "4a00 1 laptop more\n"};
    char problem[FOLDER_PROBLEM_MAX], path[PATH_MAX];
    struct place place;

    place_init(&place);
    create(&place);
    path_of(&place, "issued", path);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        cr_assert_eq(file_replace_path(path, rows[i], strlen(rows[i])), 0);
        cr_expect_eq(issue_at(&place, "laptop", NULL, time(NULL), problem), -EINVAL, "%s", rows[i]);
        cr_expect_not_null(strstr(problem, "damaged list \"issued\""), "%s", problem);
    }
    cr_assert_eq(file_replace_path(path, "4a00 99999999999 laptop\n", 24), 0);
    path_of(&place, CA_REVOKED, path);
    cr_assert_eq(file_replace_path(path, "4a00", 4), 0);
    cr_expect_eq(issue_at(&place, "laptop", NULL, time(NULL), problem), -EINVAL);
    cr_expect_not_null(strstr(problem, "damaged list \"revoked\""), "%s", problem);
}

Test(ca, a_grant_comes_back_out_of_the_certificate)
{
    char text[AUTHORITY_TEXT_MAX], name[CERTIFICATE_NAME_MAX];
    struct authority_options options = {.init = true, .name = "gpuhost"};
    struct place place;
    struct grant grant;

    place_init(&place);
    options.ca = place.ca;
    cr_assert_eq(authority_run(&options, text), 0, "%s", text);
    options = (struct authority_options){.ca = place.ca,
                                         .issue = "Laptop.3",
                                         .devices = "gpu0,gpu3",
                                         .memory = "8GiB",
                                         .sessions = 4,
                                         .share = 300,
                                         .days = 10,
                                         .out = place.out};
    cr_assert_eq(authority_run(&options, text), 0, "%s", text);
    cr_expect_not_null(
        strstr(text, "Laptop.3 for 10 days (devices=gpu0,gpu3 memory=8GiB sessions=4 share=300)"),
        "%s", text);
    struct credentials credentials = credentials_of(place.out);
    cr_expect_str_eq(credentials.server, "gpuhost");
    cr_assert_eq(certificate_name(credentials.certificate, name), 0);
    cr_expect_str_eq(name, "Laptop.3");
    cr_assert_eq(certificate_grant(credentials.certificate, &grant), 0);
    cr_expect_eq(grant.device_count, 2);
    cr_expect_str_eq(grant.devices[1], "gpu3");
    cr_expect_eq(grant.memory, 8ull << 30);
    cr_expect_eq(grant.sessions, 4);
    cr_expect_eq(grant.share, 300);
    const time_t in_nine = time(NULL) + 9 * DAY_S, in_eleven = time(NULL) + 11 * DAY_S;
    cr_expect_gt(X509_cmp_time(X509_get0_notAfter(credentials.certificate), (time_t[]){in_nine}),
                 0);
    cr_expect_lt(X509_cmp_time(X509_get0_notAfter(credentials.certificate), (time_t[]){in_eleven}),
                 0);
    credentials_finish(&credentials);
    options = (struct authority_options){.ca = place.ca, .revoke = "Laptop.3"};
    cr_expect_eq(authority_run(&options, text), 0, "%s", text);
    cr_expect_eq(authority_run(&options, text), -ESRCH);
}

Test(ca, a_servers_certificate_has_no_grant_and_a_broken_one_is_none)
{
    char server[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    struct place place;
    struct grant grant;

    place_init(&place);
    create(&place);
    path_of(&place, CA_SERVER, server);
    struct credentials credentials = credentials_of(server);
    cr_expect_eq(certificate_grant(credentials.certificate, &grant), -ENOENT);
    credentials_finish(&credentials);
    issue(&place, "laptop");
    credentials = credentials_of(place.out);
    /* A second one beside the first would be read by one and not by another. */
    X509_EXTENSION *extension = NULL;
    ASN1_OBJECT *number = OBJ_txt2obj(CERTIFICATE_GRANT_OID, 1);
    int at = X509_get_ext_by_OBJ(credentials.certificate, number, -1);
    extension = X509_EXTENSION_dup(X509_get_ext(credentials.certificate, at));
    cr_assert_eq(X509_add_ext(credentials.certificate, extension, -1), 1);
    cr_expect_eq(certificate_grant(credentials.certificate, &grant), -EINVAL);
    X509_EXTENSION_free(X509_delete_ext(credentials.certificate, at));
    cr_expect_eq(certificate_grant(credentials.certificate, &grant), 0);
    /* Something behind it, and another type. */
    static const unsigned char longer[] = "\x0c\x36"
                                          "reseat-grant-1 devices=* memory=- sessions=- share=100"
                                          "x";
    static const unsigned char other[] = "\x16\x36"
                                         "reseat-grant-1 devices=* memory=- sessions=- share=100";
    static const unsigned char whole[] = "\x0c\x36"
                                         "reseat-grant-1 devices=* memory=- sessions=- share=100";
    const struct {
        const unsigned char *bytes;
        int size, error;
    } rows[] = {{longer, sizeof(longer) - 1, -EINVAL},
                {other, sizeof(other) - 1, -EINVAL},
                {whole, 5, -EINVAL},
                {whole, 0, -EINVAL},
                {whole, sizeof(whole) - 1, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ASN1_OCTET_STRING *octets = ASN1_OCTET_STRING_new();
        cr_assert_eq(ASN1_OCTET_STRING_set(octets, rows[i].bytes, rows[i].size), 1);
        X509_EXTENSION_free(X509_delete_ext(
            credentials.certificate, X509_get_ext_by_OBJ(credentials.certificate, number, -1)));
        cr_assert_eq(X509_EXTENSION_set_data(extension, octets), 1);
        cr_assert_eq(X509_add_ext(credentials.certificate, extension, -1), 1);
        cr_expect_eq(certificate_grant(credentials.certificate, &grant), rows[i].error, "%zu", i);
        ASN1_OCTET_STRING_free(octets);
    }
    X509_EXTENSION_free(extension);
    ASN1_OBJECT_free(number);
    credentials_finish(&credentials);
    (void)problem;
}

Test(ca, options_that_do_not_go_together_are_refused)
{
    char text[AUTHORITY_TEXT_MAX];
    struct place place;

    place_init(&place);
    create(&place);
    const struct {
        struct authority_options options;
        const char *why;
    } rows[] = {
        {{.ca = place.ca}, "only one of"},
        {{.ca = place.ca, .init = true, .issue = "laptop"}, "only one of"},
        {{.ca = place.ca, .issue = "laptop", .revoke = "laptop"}, "only one of"},
        {{.ca = place.ca, .init = true, .name = "GPU host"}, "not a valid server name"},
        {{.ca = place.ca, .issue = "../laptop"}, "is not a valid name"},
        {{.ca = place.ca, .issue = "-laptop"}, "is not a valid name"},
        {{.ca = place.ca, .issue = ""}, "is not a valid name"},
        {{.ca = place.ca, .issue = "laptop", .devices = "gpu 0"}, "--devices: \"gpu 0\" is not"},
        {{.ca = place.ca, .issue = "laptop", .memory = "8"}, "--memory: \"8\" is not a size"},
        {{.ca = place.ca, .issue = "laptop", .memory = "0"}, "--memory: must be above 0"},
        {{.ca = place.ca, .issue = "laptop", .sessions = 4097}, "--sessions: a number"},
        {{.ca = place.ca, .issue = "laptop", .share = 1001}, "--share: a weight"},
        {{.ca = place.ca, .issue = "laptop", .days = 3651}, "--days: a number"},
        {{.ca = place.ca, .issue = "second", .for_server = true, .sessions = 1}, "--for-server:"},
        {{.ca = place.ca, .issue = "a_b", .for_server = true}, "is not a valid name"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        cr_expect_eq(authority_run(&rows[i].options, text), -EINVAL, "%zu", i);
        cr_expect_not_null(strstr(text, rows[i].why), "%zu: %s", i, text);
    }
}

Test(ca, a_certificate_ends_with_its_authority)
{
    const time_t now = time(NULL), late = now + (CA_DAYS_MAX - 10) * (time_t)DAY_S;
    char problem[FOLDER_PROBLEM_MAX];
    struct place place;

    place_init(&place);
    create(&place);
    cr_assert_eq(issue_at(&place, "laptop", NULL, late, problem), 0, "%s", problem);
    struct credentials credentials = credentials_of(place.out);
    cr_expect_eq(ASN1_TIME_compare(X509_get0_notAfter(credentials.certificate),
                                   X509_get0_notAfter(credentials.authority)),
                 0);
    credentials_finish(&credentials);
}

Test(ca, credentials_are_whole_and_belong_together)
{
    char problem[FOLDER_PROBLEM_MAX], *bytes, *others, mixed[32768], second[PATH_MAX];
    struct credentials credentials;
    struct place place, other;
    size_t size, other_size;

    place_init(&place);
    create(&place);
    issue(&place, "laptop");
    place_init(&other);
    create(&other);
    issue(&other, "laptop");
    snprintf(second, sizeof(second), "%s", other.out);
    cr_assert_eq(private_file_read(place.out, 65536, &bytes, &size, problem), 0);
    cr_assert_eq(private_file_read(second, 65536, &others, &other_size, problem), 0);
    /* Cut anywhere, they are not taken. The last line break may be missing. */
    for (size_t cut = 0; cut + 1 < size; cut++) {
        cr_expect_eq(credentials_parse("cut", bytes, cut, &credentials, problem), -EINVAL, "%zu",
                     cut);
    }
    cr_assert_eq(credentials_parse("whole", bytes, size, &credentials, problem), 0, "%s", problem);
    credentials_finish(&credentials);
    const char *key = strstr(bytes, "-----BEGIN CERT"),
               *other_key = strstr(others, "-----BEGIN CERT");
    snprintf(mixed, sizeof(mixed), "%.*s%s", (int)(key - bytes), bytes, other_key);
    cr_expect_eq(credentials_parse("mixed", mixed, strlen(mixed), &credentials, problem), -EINVAL);
    cr_expect_not_null(strstr(problem, "does not belong to its certificate"), "%s", problem);
    const char *last = strstr(key + 1, "-----BEGIN CERT"),
               *other_last = strstr(other_key + 1, "-----BEGIN CERT");
    snprintf(mixed, sizeof(mixed), "%.*s%s", (int)(last - bytes), bytes, other_last);
    cr_expect_eq(credentials_parse("mixed", mixed, strlen(mixed), &credentials, problem), -EINVAL);
    cr_expect_not_null(strstr(problem, "did not sign"), "%s", problem);
    snprintf(mixed, sizeof(mixed), "reseat-server: GPU host\n%s", strchr(bytes, '\n') + 1);
    cr_expect_eq(credentials_parse("mixed", mixed, strlen(mixed), &credentials, problem), -EINVAL);
    cr_expect_not_null(strstr(problem, "does not begin with"), "%s", problem);
    private_file_free(bytes, size);
    private_file_free(others, other_size);
}

/* A prompt on the terminal of somebody's program would wait for ever. */
Test(ca, an_encrypted_key_asks_nobody)
{
    char said[256], problem[FOLDER_PROBLEM_MAX], path[PATH_MAX];
    struct credentials credentials;
    struct place place;

    place_init(&place);
    create(&place);
    issue(&place, "laptop");
    snprintf(path, sizeof(path), "%s/encrypted.pem", place.above);
    cr_assert_eq(
        tool(said, sizeof(said),
             "umask 077; (head -1 %s; openssl pkcs8 -topk8 -in %s -passout pass:secret; sed "
             "-n '/BEGIN CERT/,$p' %s) > %s",
             place.out, place.out, place.out, path),
        0);
    cr_expect_eq(credentials_load(path, &credentials, problem), -EINVAL);
    cr_expect_not_null(strstr(problem, "has no private key"), "%s", problem);
}

static int find(const char *text, char ret_path[PATH_MAX])
{
    char reason[ADDRESS_REASON_MAX];
    struct address address;

    cr_assert_eq(address_parse(text, &address, reason), 0, "%s", reason);
    return credentials_find(&address, ret_path);
}

static void expect_found(const char *text, const char *folder, const char *name)
{
    char path[PATH_MAX], expected[PATH_MAX + 32];

    snprintf(expected, sizeof(expected), "%s/%s", folder, name);
    cr_expect_eq(find(text, path), 0, "%s", text);
    cr_expect_str_eq(path, expected);
}

Test(ca, credentials_are_found_by_the_servers_address)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct place place;

    place_init(&place);
    unsetenv("RESEAT_CREDENTIALS");
    setenv("XDG_CONFIG_HOME", place.above, 1);
    cr_expect_eq(find("tcp:gpuhost:1", path), -ENOENT);
    snprintf(folder, sizeof(folder), "%s/reseat", place.above);
    cr_assert_eq(mkdir(folder, 0700), 0);
    strcat(folder, "/servers");
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_expect_eq(find("tcp:gpuhost:1", path), -ENOENT);
    folder_put(folder, "gpuhost.pem", "");
    folder_put(folder, "notes.txt", "");
    folder_put(folder, ".pem", "");
    /* One will do for all that its server is called. */
    expect_found("tcp:GPUhost:1", folder, "gpuhost.pem");
    expect_found("tcp:[2001:db8::1]:1", folder, "gpuhost.pem");
    expect_found("vsock:host:1", folder, "gpuhost.pem");
    folder_put(folder, "2001:db8::1.pem", "");
    folder_put(folder, "vsock-2.pem", "");
    expect_found("tcp:gpuhost:1", folder, "gpuhost.pem");
    expect_found("tcp:[2001:db8::1]:1", folder, "2001:db8::1.pem");
    expect_found("vsock:host:1", folder, "vsock-2.pem");
    cr_expect_eq(find("tcp:other:1", path), -ENOTUNIQ);
    cr_expect_eq(find("vsock:3:1", path), -ENOTUNIQ);
    setenv("RESEAT_CREDENTIALS", "/elsewhere/x.pem", 1);
    expect_found("tcp:other:1", "/elsewhere", "x.pem");
    setenv("RESEAT_CREDENTIALS", "x.pem", 1);
    cr_expect_eq(find("tcp:other:1", path), -EINVAL);
}
