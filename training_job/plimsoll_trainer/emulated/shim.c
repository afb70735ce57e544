/* The memory of an emulated device: counts torch's CPU tensors and caps them.
 *
 * Preloaded into a worker. Torch's CPU allocator asks posix_memalign for blocks aligned
 * to 64 bytes and gives them back with free; those blocks, and no others, are counted.
 * Other libraries align likewise (oneDNN does, for workspaces that die with a kernel, and
 * crashes when it gets none), so the caller must lie in libc10, where the allocator is.
 * A block that would bring the sum over the cap is refused with ENOMEM, which torch
 * raises as out of memory: what a full device does. Blocks may be left to the host; they
 * are known by their address until they are given back, with 0 bytes. A thread may ask for
 * memory of the host, which is not counted at all.
 *
 * Thread-safe. A block is found again by its address in one of SHARDS tables, each with
 * a lock of its own, because torch frees on other threads than it allocates on.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TENSOR_ALIGNMENT 64 /* c10::gAlignment */
#define SHARDS 64
#define FIRST_SLOTS 256 /* of a shard; doubled when half full; a power of two */

/* glibc's own functions, under the names that stay reachable below ours. */
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

struct slot {
    uintptr_t block; /* 0: never used, 1: given back */
    uint64_t bytes;
};

static struct shard {
    pthread_mutex_t lock;
    struct slot *slots;
    size_t num_slots, num_used; /* used: live or given back */
} shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static _Atomic uint64_t current_bytes, peak_bytes, cap_bytes, num_refused;

uint64_t plimsoll_current_bytes(void) { return current_bytes; }
uint64_t plimsoll_peak_bytes(void) { return peak_bytes; }
uint64_t plimsoll_cap_bytes(void) { return cap_bytes; }
uint64_t plimsoll_num_refused(void) { return num_refused; }
void plimsoll_reset_peak(void) { peak_bytes = current_bytes; }
void plimsoll_set_cap(uint64_t bytes) { cap_bytes = bytes; }

/* Whether this thread asks for memory of the host; read without any allocation. */
static _Thread_local int on_host __attribute__((tls_model("initial-exec")));
void plimsoll_set_on_host(int value) { on_host = value; }

static size_t mixed(uintptr_t block)
{
    return (size_t)((block / TENSOR_ALIGNMENT * 0x9E3779B97F4A7C15u) >> 20);
}

static struct slot *map_slots(size_t count)
{
    void *memory = mmap(NULL, count * sizeof(struct slot), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The slot of a block, or the free one where it belongs. */
static struct slot *find(struct shard *shard, uintptr_t block)
{
    size_t place = mixed(block) & (shard->num_slots - 1);
    while (shard->slots[place].block && shard->slots[place].block != block)
        place = (place + 1) & (shard->num_slots - 1);
    return &shard->slots[place];
}

/* Make room, and drop the slots that were given back. */
static int grow(struct shard *shard)
{
    size_t live = 0, old_count = shard->num_slots;
    struct slot *old = shard->slots;
    for (size_t i = 0; i < old_count; i++)
        live += old[i].block > 1;
    size_t count = FIRST_SLOTS;
    while (count < 4 * (live + 1))
        count *= 2;
    struct slot *slots = map_slots(count);
    if (!slots)
        return ENOMEM;
    shard->slots = slots, shard->num_slots = count, shard->num_used = live;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].block > 1)
            *find(shard, old[i].block) = old[i];
    if (old)
        munmap(old, old_count * sizeof *old);
    return 0;
}

static int remember(uintptr_t block, uint64_t bytes)
{
    struct shard *shard = &shards[mixed(block) >> 16 & (SHARDS - 1)];
    int error = 0;
    pthread_mutex_lock(&shard->lock);
    if (2 * (shard->num_used + 1) > shard->num_slots)
        error = grow(shard);
    if (!error) {
        struct slot *slot = find(shard, block);
        shard->num_used += !slot->block;
        *slot = (struct slot){block, bytes};
    }
    pthread_mutex_unlock(&shard->lock);
    return error;
}

/* Mark a slot as given back; as never used, where no search goes on past it. */
static void give_back(struct shard *shard, struct slot *slot)
{
    size_t last = shard->num_slots - 1, place = slot - shard->slots;
    slot->block = 1;
    if (shard->slots[(place + 1) & last].block)
        return;
    for (; shard->slots[place].block == 1; place = (place - 1) & last) {
        shard->slots[place].block = 0;
        shard->num_used--;
    }
}

/* The bytes of a block that is given back; 0 when it is not a tensor's. */
static uint64_t forget(uintptr_t block)
{
    struct shard *shard = &shards[mixed(block) >> 16 & (SHARDS - 1)];
    uint64_t bytes = 0;
    pthread_mutex_lock(&shard->lock);
    if (shard->num_slots) {
        struct slot *slot = find(shard, block);
        if (slot->block == block) {
            bytes = slot->bytes;
            give_back(shard, slot);
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return bytes;
}

/* Leave to the host what is alive now: it takes none of the device's memory any more. */
void plimsoll_leave_out(void)
{
    for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
        pthread_mutex_lock(&shard->lock);
        for (size_t i = 0; i < shard->num_slots; i++)
            if (shard->slots[i].block > 1) {
                atomic_fetch_sub(&current_bytes, shard->slots[i].bytes);
                shard->slots[i].bytes = 0;
            }
        pthread_mutex_unlock(&shard->lock);
    }
    plimsoll_reset_peak();
}

/* Whether a call comes from torch's allocator. Callers are few: remember the last ones. */
static int from_torch(void *caller)
{
    static _Atomic(void *) torch_caller, other_caller;
    if (caller == torch_caller)
        return 1;
    if (caller == other_caller)
        return 0;
    Dl_info library;
    int found = dladdr(caller, &library) && strstr(library.dli_fname, "libc10");
    *(found ? &torch_caller : &other_caller) = caller;
    return found;
}

/* Take bytes from the device; 0, or ENOMEM when they do not fit. */
static int take(uint64_t bytes)
{
    uint64_t now = atomic_fetch_add(&current_bytes, bytes) + bytes;
    if (cap_bytes && now > cap_bytes) {
        atomic_fetch_sub(&current_bytes, bytes);
        atomic_fetch_add(&num_refused, 1);
        return ENOMEM;
    }
    uint64_t peak = peak_bytes;
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        ;
    return 0;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    int counted = alignment == TENSOR_ALIGNMENT && size && !on_host &&
                  from_torch(__builtin_return_address(0));
    if (counted && take(size))
        return ENOMEM;
    void *block = __libc_memalign(alignment, size);
    if (block && counted && remember((uintptr_t)block, size)) {
        __libc_free(block);
        block = NULL;
    }
    if (!block) {
        if (counted)
            atomic_fetch_sub(&current_bytes, size);
        return ENOMEM;
    }
    *out = block;
    return 0;
}

void free(void *block)
{
    if (block && (uintptr_t)block % TENSOR_ALIGNMENT == 0) {
        uint64_t bytes = forget((uintptr_t)block);
        if (bytes)
            atomic_fetch_sub(&current_bytes, bytes);
    }
    __libc_free(block);
}

__attribute__((constructor)) static void read_cap(void)
{
    const char *text = getenv("PLIMSOLL_DEVICE_MEMORY_BYTES");
    if (text)
        cap_bytes = strtoull(text, NULL, 10);
}
