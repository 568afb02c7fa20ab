#include "state/recipe/headers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/cleanup.h"
#include "state/base/log.h"
#include "state/recipe/headers_priv.h"

#define PASSES_MAX     8
#define DIRECTIVES_MAX ((size_t)1 << 18)

/** What identifies a file. */
struct walk_file {
    dev_t device;
    ino_t inode;
};

void headers_free(struct headers *headers)
{
    if (!headers)
        return;
    for (uint32_t i = 0; i < headers->count; i++) {
        free(headers->list[i].path);
        free(headers->list[i].bytes);
    }
    free(headers->list);
    free(headers);
}

bool headers_same(const struct headers *a, const struct headers *b)
{
    static const struct headers none;
    a = a ? a : &none;
    b = b ? b : &none;
    if (a->count != b->count || a->partial != b->partial)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct header *x = &a->list[i], *y = &b->list[i];
        if (x->same != y->same || x->size != y->size || strcmp(x->path, y->path) != 0 ||
            (x->size && memcmp(x->bytes, y->bytes, x->size) != 0))
            return false;
    }
    return true;
}

int headers_add(struct headers *headers, const char *path, uint32_t same, const void *bytes,
                size_t size)
{
    size_t total = 0;
    for (uint32_t i = 0; i < headers->count; i++)
        total += headers->list[i].size;
    if (headers->count == HEADERS_MAX || strlen(path) >= HEADER_PATH_MAX ||
        (same == headers->count && size > HEADERS_BYTES_MAX - total))
        return -E2BIG;
    struct header header = {.path = strdup(path), .same = same};
    bool whole = array_make_room(&headers->list, headers->count, sizeof(header));
    if (same == headers->count && (header.bytes = malloc(size + 1))) {
        if (size)
            memcpy(header.bytes, bytes, size);
        header.bytes[size] = '\0';
        header.size = size;
    }
    if (!whole || !header.path || (same == headers->count && !header.bytes)) {
        free(header.path);
        free(header.bytes);
        return -ENOMEM;
    }
    headers->list[headers->count++] = header;
    return 0;
}

int headers_copy(const struct headers *headers, struct headers **ret_headers)
{
    struct headers *copy = headers ? calloc(1, sizeof(*copy)) : NULL;
    int err = headers && !copy ? -ENOMEM : 0;
    for (uint32_t i = 0; !err && headers && i < headers->count; i++) {
        const struct header *header = &headers->list[i];
        err = headers_add(copy, header->path, header->same, header->bytes, header->size);
    }
    if (err) {
        headers_free(copy);
        return err;
    }
    if (copy)
        copy->partial = headers->partial;
    *ret_headers = copy;
    return 0;
}

/* Add the file at @path, if there is one. */
static int headers_add_from_disk(struct walk *walk, const char *path)
{
    struct headers *headers = walk->headers;
    struct stat stat;
    /* Only regular files are opened: opening a device may have effects, and reading a pipe may take
     * another program's data. */
    if (fstatat(AT_FDCWD, path, &stat, 0) != 0 || !S_ISREG(stat.st_mode))
        return 0;
    int CLEANUP(cleanup_close) fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        return 0;
    uint32_t same = 0;
    while (same < headers->count &&
           (walk->files[same].device != stat.st_dev || walk->files[same].inode != stat.st_ino))
        same++;
    if (!array_make_room(&walk->files, headers->count, sizeof(*walk->files)))
        return -ENOMEM;
    walk->files[headers->count] = (struct walk_file){stat.st_dev, stat.st_ino};
    if (same < headers->count)
        return headers_add(headers, path, headers->list[same].same, NULL, 0);
    if (stat.st_size < 0 || (uint64_t)stat.st_size > HEADERS_BYTES_MAX)
        return -E2BIG;
    size_t size = 0, room = (size_t)stat.st_size;
    char *CLEANUP(cleanup_free) bytes = malloc(room + 1);
    ssize_t length = 1;
    while (bytes && size < room && length > 0) {
        length = read(fd, bytes + size, room - size);
        size += length > 0 ? (size_t)length : 0;
        if (length < 0 && errno == EINTR)
            length = 1;
    }
    if (length < 0)
        return 0;
    return bytes ? headers_add(headers, path, same, bytes, size) : -ENOMEM;
}

/* Join @folder, of @length bytes, and @name. False if that is too long. */
static bool headers_join(char ret_path[HEADER_PATH_MAX], const char *folder, size_t length,
                         const char *name)
{
    size_t slash = length && folder[length - 1] != '/';
    if (length + slash + strlen(name) >= HEADER_PATH_MAX)
        return false;
    memcpy(ret_path, folder, length);
    ret_path[length] = '/';
    strcpy(ret_path + length + slash, name);
    return true;
}

static int headers_find(struct walk *walk, const char *folder, size_t length, const char *name,
                        int *ret_index)
{
    char path[HEADER_PATH_MAX];
    if (!headers_join(path, folder, length, name))
        return 0;
    uint32_t before = walk->headers->count;
    for (uint32_t i = 0; i < before; i++) {
        if (strcmp(walk->headers->list[i].path, path) == 0) {
            *ret_index = (int)i;
            return 0;
        }
    }
    int err = walk->fixed ? 0 : headers_add_from_disk(walk, path);
    if (!err && walk->headers->count > before)
        *ret_index = (int)before;
    return err;
}

/* Index after the folder that @text was found in, as @name. 0: it was found in none, so that the
 * search begins normally. */
static size_t headers_next_folder(const struct walk *walk, const struct walk_text *text,
                                  const char *name)
{
    char path[HEADER_PATH_MAX];
    for (size_t i = 0; text->folder && i < walk->folder_count; i++)
        if (headers_join(path, walk->folders[i], strlen(walk->folders[i]), name) &&
            strcmp(path, text->folder) == 0)
            return i + 1;
    return 0;
}

int walk_resolve(struct walk *walk, const struct walk_text *text, const struct header_name *name,
                 bool next, int *ret_index)
{
    const struct recipe *recipe = walk->recipe;
    int err = 0;
    *ret_index = WALK_NONE;
    for (uint32_t i = 1; i < recipe->input_count; i++) {
        if (strcmp(recipe->names[i], name->text) == 0) {
            *ret_index = WALK_EMBEDDED;
            return 0;
        }
    }
    if (name->text[0] == '/')
        return headers_find(walk, "", 0, name->text, ret_index);
    size_t first = next ? headers_next_folder(walk, text, name->text) : 0;
    /* A quoted name is searched beside the including file first; for a source that is the working
     * folder. */
    if (name->quoted && first == 0)
        err = headers_find(walk, text->folder ? text->folder : "", text->folder_length, name->text,
                           ret_index);
    for (size_t i = first; !err && *ret_index == WALK_NONE && i < walk->folder_count; i++)
        err = headers_find(walk, walk->folders[i], strlen(walk->folders[i]), name->text, ret_index);
    /* Drivers differ: some search the working folder last, some first, some not at all. */
    int here = WALK_NONE;
    if (!err && first == 0 && (*ret_index == WALK_NONE || !name->quoted))
        err = headers_find(walk, "", 0, name->text, &here);
    if (*ret_index == WALK_NONE)
        *ret_index = here;
    walk->unsure = walk->unsure || (here >= 0 && walk->headers->list[here].same !=
                                                     walk->headers->list[*ret_index].same);
    return err;
}

static int headers_add_string(char ***strings, size_t *count, char *string)
{
    if (!array_make_room(strings, *count, sizeof(string)))
        return -ENOMEM;
    (*strings)[(*count)++] = string;
    return 0;
}

/* Define the macro of an option "NAME=body" or "NAME". */
static void headers_define(FILE *out, const char *text, size_t size)
{
    const char *equals = memchr(text, '=', size), *end = text + size;
    fprintf(out, "#define %.*s %.*s\n", (int)((equals ? equals : end) - text), text,
            equals ? (int)(end - equals - 1) : 1, equals ? equals + 1 : "1");
}

/* Drivers differ in whether quotes belong to a macro's body: define it both ways. */
static void headers_define_both(FILE *out, const char *options, const struct option *option)
{
    const char *raw = options + option->at + strlen("-D"), *end = options + option->end;
    headers_define(out, option->argument, strlen(option->argument));
    if (raw > end || memcmp(raw - 2, "-D", 2) != 0)
        return;
    raw += strspn(raw, " \t\r\n\v\f");
    if (raw < end)
        headers_define(out, raw, (size_t)(end - raw));
}

static int headers_read_options(struct walk *walk)
{
    char *CLEANUP(cleanup_free) text = NULL;
    size_t cursor = 0, size;
    int found, err = 0;
    struct option option;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return -ENOMEM;
    while (!err && (found = option_next(walk->recipe->options, &cursor, &option)) == 1) {
        if (option.kind == OPTION_DEFINE)
            headers_define_both(out, walk->recipe->options, &option);
        else if (option.kind == OPTION_FOLDER)
            err = headers_add_string(&walk->folders, &walk->folder_count, option.argument);
        else if (option.kind == OPTION_INCLUDE)
            err = headers_add_string(&walk->forced, &walk->forced_count, option.argument);
        if (err || option.kind == OPTION_DEFINE || option.kind == OPTION_OTHER)
            free(option.argument);
    }
    err = fclose(out) != 0 ? -ENOMEM : err;
    err = err ? err : found;
    return err ? err : directives_read(text, size, &walk->options);
}

static int headers_add_text(struct walk *walk, const char *path, const char *bytes, size_t size)
{
    if (!array_make_room(&walk->texts, walk->text_count, sizeof(*walk->texts)))
        return -ENOMEM;
    struct walk_text *text = &walk->texts[walk->text_count++];
    *text = (struct walk_text){.folder = path};
    const char *slash = path ? strrchr(path, '/') : NULL;
    text->folder_length = slash ? (size_t)(slash + 1 - path) : 0;
    int err = bytes ? directives_read(bytes, size, &text->directives) : 0;
    walk->directive_count += text->directives.count;
    return !err && walk->directive_count > DIRECTIVES_MAX ? -E2BIG : err;
}

/* Add the headers found since the last call. */
static int headers_add_texts(struct walk *walk)
{
    int err = 0;
    for (size_t i = walk->text_count - walk->recipe->input_count; !err && i < walk->headers->count;
         i++) {
        const struct header *header = &walk->headers->list[i];
        err = headers_add_text(walk, header->path, header->bytes, header->size);
    }
    return err;
}

/* @ret_macros  Set where a directive's meaning depends on macros. */
static int headers_follow(struct walk *walk, size_t t, bool *ret_macros)
{
    const struct walk_text *text = &walk->texts[t];
    const struct directives *of = &text->directives;
    int err = 0, index;
    for (size_t i = 0; !err && i < of->count; i++) {
        const struct directive *directive = &of->list[i];
        if (directive->kind == DIRECTIVE_DEFINE)
            continue;
        *ret_macros = *ret_macros || !header_name_is_literal(of->clean + directive->at,
                                                             directive->end - directive->at);
        err = walk_directive(walk, text, directive, &index);
    }
    return err;
}

int walk_all(struct walk *walk)
{
    const struct recipe *recipe = walk->recipe;
    bool macros = false, more = true;
    int err = headers_read_options(walk), index;
    for (uint32_t i = 0; !err && i < recipe->input_count; i++)
        err = headers_add_text(walk, NULL, recipe->inputs[i]->bytes, recipe->inputs[i]->size);
    for (size_t i = 0; !err && i < walk->forced_count; i++) {
        struct header_name name = {.quoted = true};
        if (strlen(walk->forced[i]) >= sizeof(name.text))
            continue;
        strcpy(name.text, walk->forced[i]);
        err = walk_resolve(walk, &walk->texts[0], &name, false, &index);
    }
    /* A macro may be defined by a header that is found after the text that needs it. */
    for (unsigned pass = 0; !err && more && pass < PASSES_MAX; pass++) {
        uint32_t before = walk->headers->count;
        err = headers_add_texts(walk);
        for (size_t t = 0; !err && t < walk->text_count; t++) {
            err = headers_follow(walk, t, &macros);
            if (!err)
                err = headers_add_texts(walk);
        }
        more = macros && walk->headers->count > before;
    }
    return err;
}

void walk_finish(struct walk *walk)
{
    for (size_t i = 0; i < walk->text_count; i++)
        directives_finish(&walk->texts[i].directives);
    for (size_t i = 0; i < walk->folder_count; i++)
        free(walk->folders[i]);
    for (size_t i = 0; i < walk->forced_count; i++)
        free(walk->forced[i]);
    free(walk->texts);
    free(walk->folders);
    free(walk->forced);
    free(walk->files);
    directives_finish(&walk->options);
}

static bool headers_may_include(const struct recipe *recipe)
{
    static const char word[] = "include", import[] = "import";
    bool may = strstr(recipe->options, word) != NULL;
    for (uint32_t i = 0; !may && i < recipe->input_count; i++)
        may = preprocess_splits(recipe->inputs[i]->bytes, recipe->inputs[i]->size) ||
              memmem(recipe->inputs[i]->bytes, recipe->inputs[i]->size, word, strlen(word)) ||
              memmem(recipe->inputs[i]->bytes, recipe->inputs[i]->size, import, strlen(import));
    return may;
}

int headers_read(const struct recipe *recipe, struct headers **ret_headers)
{
    struct headers *headers = NULL;
    if (recipe_is_of_source(recipe) && headers_may_include(recipe)) {
        headers = calloc(1, sizeof(*headers));
        struct walk walk = {.recipe = recipe, .headers = headers};
        int err = headers ? walk_all(&walk) : -ENOMEM;
        walk_finish(&walk);
        if (err == -E2BIG || (!err && walk.unsure)) {
            log_warn("a program includes %s: where it is moved, its headers are read again, and it "
                     "has no portable binary",
                     err ? "more than is kept" : "by a name that can mean several files");
            headers->partial = true;
        } else if (err) {
            headers_free(headers);
            return err;
        }
        if (headers->count == 0 && !headers->partial) {
            headers_free(headers);
            headers = NULL;
        }
    }
    *ret_headers = headers;
    return 0;
}
