# The worker pool of the CPU device (x86-64, System V ABI, position independent, no relocations).
# `python tools/assemble_pool.py` turns this file into cpu_pool_code.py; a test compares the two.
#
# pool, one per process:                         job, packed by the launch, read only:
#   00 u32 seq      raised once per job            00 fn      void (args, start, end, gx, gy, gz)
#   04 u32 parked   workers asleep on seq          08 total   programs of the grid, at least 1
#   08 u64 spin     cycles to spin before sleep    10 gx      18 gy      20 gz
#   10 u64 grain    cycles of work worth waking one 28 cost    address of u64: cycles a program took, 0 = unknown
#   18 u32 home     the last waker's processor
#   40 u32 lock     1 while a job holds the pool   30 helpers workers that may help
#   44 u32 tickets  workers that may still join    38 args    8 bytes each
#   48 u32 done     joined workers that are done
#   4c u32 sleeping 1 if the launcher sleeps on done
#   50 u64 job      58 u64 chunk  60 u64 chunks of the job
#   68 u64 last     time-stamp counter at the end of the last launch
#   80 u32 front    chunks taken from the front (by the launcher)
#   84 u32 back     chunks taken from the back (by workers): so a processor meets what it had in its caches from one
#                   launch to the next, and reads what lies together
#
# A worker joins a job by taking a ticket; the launcher takes back the tickets nobody took and waits only for those
# who joined, so a worker that the system does not schedule delays nobody, and one that wakes late touches nothing.
# A launch that finds the pool taken runs alone. A worker leaves the waker's processor out of its affinity before it
# sleeps: a scheduler that sees two processors, one of them busy, takes both for busy and would wake it there, where it
# does not run for milliseconds.

# Numbers: system call 202 is futex, its operations 128 wait and 129 wake (private to the process); 203 and 204 set and
# get the affinity, 309 is getcpu. MXCSR 0x1f80: exceptions masked, round to nearest, no flush to zero, no denormals are
# zero.

.intel_syntax noprefix
.text

# u32 launch(pool *rdi, job *rsi): runs the job, returns how many workers joined.
nbx_launch:
        push    rbx
        push    rbp
        push    r12
        push    r13
        push    r14
        push    r15
        sub     rsp, 24
        stmxcsr [rsp]
        mov     dword ptr [rsp + 4], 0x1f80
        ldmxcsr [rsp + 4]
        mov     rbx, rdi
        mov     rbp, rsi
        mov     r13, [rbp + 0x08]       # total
        mov     r12, [rbp + 0x30]       # helpers = min(helpers, total - 1, total * cost / grain - 1)
        lea     rax, [r13 - 1]
        cmp     r12, rax
        cmova   r12, rax
        test    r12, r12
        jz      .Lserial
        mov     rcx, [rbp + 0x28]
        mov     rax, [rcx]
        test    rax, rax
        jz      .Lpublish               # cost unknown: all may help
        mul     r13
        test    rdx, rdx
        jnz     .Lpublish
        mov     rcx, [rbx + 0x10]
        mov     r14, rax
        cmp     dword ptr [rbx + 0x04], 0
        je      .Lawake
        rdtsc
        shl     rdx, 32
        or      rax, rdx
        sub     rax, [rbx + 0x68]
        cmp     rax, [rbx + 0x08]
        jae     .Lasleep                # else launches follow each other: who is woken now stays awake
.Lawake:
        shr     rcx, 2                  # workers that are awake are worth it for a quarter of the work
.Lasleep:
        mov     rax, r14
        xor     edx, edx
        div     rcx
        sub     rax, 1
        jbe     .Lserial
        cmp     r12, rax
        cmova   r12, rax
.Lpublish:
        xor     eax, eax
        mov     ecx, 1
        lock cmpxchg [rbx + 0x40], ecx
        jne     .Lserial                # another launch has the pool
        lea     rcx, [r12 + 1]          # chunk = total / (8 * threads) + 1
        shl     rcx, 3
        mov     rax, r13
        xor     edx, edx
        div     rcx
        inc     rax
        mov     [rbx + 0x58], rax
        mov     rcx, rax
        lea     rax, [r13 + rcx - 1]
        xor     edx, edx
        div     rcx
        mov     [rbx + 0x60], rax
        mov     [rbx + 0x50], rbp
        mov     qword ptr [rbx + 0x80], 0
        mov     qword ptr [rbx + 0x48], 0       # done, sleeping
        mov     [rbx + 0x44], r12d      # from here workers join
        lock inc dword ptr [rbx]
        cmp     dword ptr [rbx + 0x04], 0
        je      .Lshared                # nobody is parked: spinning workers see seq
        mov     eax, 309
        lea     rdi, [rbx + 0x18]
        xor     esi, esi
        xor     edx, edx
        syscall
        mov     eax, 202
        mov     rdi, rbx
        mov     esi, 129
        mov     edx, 4                  # those who come wake more, so that many workers do not cost the launcher
        xor     r10d, r10d
        syscall
.Lshared:
        rdtsc
        shl     rdx, 32
        lea     r15, [rax + rdx]
        xor     edi, edi
        call    .Lchunks
        call    .Lrecord
        xor     eax, eax
        xchg    [rbx + 0x44], eax       # tickets nobody took
        sub     r12d, eax
        jz      .Lrelease
        rdtsc
        shl     rdx, 32
        lea     r13, [rax + rdx]
        add     r13, [rbx + 0x08]
.Lspin:
        cmp     [rbx + 0x48], r12d
        je      .Lrelease
        pause
        rdtsc
        shl     rdx, 32
        or      rax, rdx
        cmp     rax, r13
        jb      .Lspin
        mov     eax, 1
        xchg    [rbx + 0x4c], eax
.Lsleep:
        mov     edx, [rbx + 0x48]
        cmp     edx, r12d
        je      .Lrelease
        mov     eax, 202
        lea     rdi, [rbx + 0x48]
        mov     esi, 128
        xor     r10d, r10d
        syscall
        jmp     .Lsleep
.Lrelease:
        mov     dword ptr [rbx + 0x40], 0
        jmp     .Lreturn
.Lserial:
        rdtsc
        shl     rdx, 32
        lea     r15, [rax + rdx]
        mov     r14, r13
        lea     rdi, [rbp + 0x38]
        xor     esi, esi
        mov     rdx, r13
        mov     rcx, [rbp + 0x10]
        mov     r8, [rbp + 0x18]
        mov     r9, [rbp + 0x20]
        call    [rbp]
        call    .Lrecord
        xor     r12d, r12d
.Lreturn:
        rdtsc
        shl     rdx, 32
        or      rax, rdx
        mov     [rbx + 0x68], rax
        ldmxcsr [rsp]
        mov     eax, r12d
        add     rsp, 24
        pop     r15
        pop     r14
        pop     r13
        pop     r12
        pop     rbp
        pop     rbx
        ret

# Takes chunks of the job rbp until none is left, from the front (edi 0) or the back (1); r14 = programs run.
.Lchunks:
        sub     rsp, 24
        mov     [rsp], rdi
        xor     r14d, r14d
.Ltake:
        mov     rax, [rbx + 0x80]
.Ltry:
        mov     esi, eax                # front
        mov     rdx, rax
        shr     rdx, 32                 # back
        mov     rcx, [rbx + 0x60]
        sub     rcx, rdx                # one more than the last chunk that is left
        cmp     rsi, rcx
        jae     .Lempty
        mov     edi, 1
        cmp     dword ptr [rsp], 0
        je      .Lfront
        lea     rsi, [rcx - 1]
        shl     rdi, 32
.Lfront:
        add     rdi, rax
        lock cmpxchg [rbx + 0x80], rdi
        jne     .Ltry
        imul    rsi, [rbx + 0x58]
        mov     rcx, [rbp + 0x08]
        mov     rdx, rsi
        add     rdx, [rbx + 0x58]
        cmp     rdx, rcx
        cmova   rdx, rcx
        add     r14, rdx
        sub     r14, rsi
        lea     rdi, [rbp + 0x38]
        mov     rcx, [rbp + 0x10]
        mov     r8, [rbp + 0x18]
        mov     r9, [rbp + 0x20]
        call    [rbp]
        jmp     .Ltake
.Lempty:
        add     rsp, 24
        ret

# cost = (now - r15) / r14, at least 1. Workers that left nothing for the launcher: the job was smaller than thought.
.Lrecord:
        mov     rcx, [rbp + 0x28]
        test    r14, r14
        jz      .Lhalve
        rdtsc
        shl     rdx, 32
        or      rax, rdx
        sub     rax, r15
        xor     edx, edx
        div     r14
        cmp     rax, 1
        adc     rax, 0
        mov     [rcx], rax
        ret
.Lhalve:
        shr     qword ptr [rcx], 1
        ret

# void *worker(pool *rdi): start routine of a thread; never returns.
        .p2align 4
nbx_worker:
        sub     rsp, 280                # 10 processors allowed, 90 those without the waker's, 110 which that was
        mov     dword ptr [rsp], 0x1f80 # 114 bytes of a set of processors, 0 if they are too many
        ldmxcsr [rsp]
        mov     rbx, rdi
        mov     eax, 144                # sched_setscheduler(0, SCHED_BATCH, {0}): waking a worker does not preempt
        xor     edi, edi                # the launcher where both share a processor
        mov     esi, 3
        mov     dword ptr [rsp], edi
        mov     rdx, rsp
        syscall
        mov     eax, 204
        xor     edi, edi
        mov     esi, 128
        lea     rdx, [rsp + 0x10]
        syscall
        xor     ecx, ecx
        test    eax, eax
        cmovs   eax, ecx
        mov     [rsp + 0x114], eax
        mov     dword ptr [rsp + 0x110], -1
.Lnext:
        mov     r12d, [rbx]
        mov     eax, [rbx + 0x44]
        test    eax, eax
        jz      .Lidle
        lea     ecx, [rax - 1]
        lock cmpxchg [rbx + 0x44], ecx
        jne     .Lnext
        mov     rbp, [rbx + 0x50]
        cmp     dword ptr [rbx + 0x44], 0
        je      .Ljoined
        cmp     dword ptr [rbx + 0x04], 0
        je      .Ljoined
        mov     eax, 202
        mov     rdi, rbx
        mov     esi, 129
        mov     edx, 2
        xor     r10d, r10d
        syscall
.Ljoined:
        mov     edi, 1
        call    .Lchunks
        lock inc dword ptr [rbx + 0x48]
        cmp     dword ptr [rbx + 0x4c], 0
        je      .Lnext
        mov     eax, 202
        lea     rdi, [rbx + 0x48]
        mov     esi, 129
        mov     edx, 1
        xor     r10d, r10d
        syscall
        jmp     .Lnext
.Lidle:
        rdtsc
        shl     rdx, 32
        lea     r13, [rax + rdx]
        add     r13, [rbx + 0x08]
.Lwatch:
        pause
        cmp     [rbx], r12d
        jne     .Lnext
        rdtsc
        shl     rdx, 32
        or      rax, rdx
        cmp     rax, r13
        jb      .Lwatch
        mov     eax, [rbx + 0x18]
        cmp     eax, [rsp + 0x110]
        je      .Lpark
        mov     [rsp + 0x110], eax
        mov     edx, [rsp + 0x114]
        shl     edx, 3
        cmp     eax, edx
        jae     .Lpark
        lea     rsi, [rsp + 0x10]
        lea     rdi, [rsp + 0x90]
        mov     ecx, 16
        rep movsq
        btr     [rsp + 0x90], rax
        mov     eax, 203                # fails, changing nothing, where no other processor is allowed
        xor     edi, edi
        mov     esi, [rsp + 0x114]
        lea     rdx, [rsp + 0x90]
        syscall
.Lpark:
        lock inc dword ptr [rbx + 0x04]
        mov     eax, 202
        mov     rdi, rbx
        mov     esi, 128
        mov     edx, r12d
        xor     r10d, r10d
        syscall
        lock dec dword ptr [rbx + 0x04]
        jmp     .Lnext
